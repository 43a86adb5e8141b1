"""BERT-base (random weights) classifying sequences of 512 tokens, AdamW. Needs transformers."""

import torch
from torch import nn
from transformers import BertConfig, BertForSequenceClassification

TOKENS = 512


def make_model() -> nn.Module:
    return BertForSequenceClassification(BertConfig())


def make_batch(batch_size: int) -> dict[str, torch.Tensor]:
    return {
        "input_ids": torch.randint(0, 30522, (batch_size, TOKENS)),
        "labels": torch.randint(0, 2, (batch_size,)),
    }


def loss(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    return model(**batch).loss


def make_optimizer(params: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(params, lr=1e-4)


def shorten(batch: dict[str, torch.Tensor], share: float) -> dict[str, torch.Tensor]:
    """The batch of shorter texts that a real data set has between long ones."""
    return {"input_ids": batch["input_ids"][:, : round(TOKENS * share)].contiguous(), "labels": batch["labels"]}
