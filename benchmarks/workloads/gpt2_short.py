"""GPT-2 124M from its configuration (random weights), 256 tokens, AdamW: batches of a hundred and more. Needs transformers."""

import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

TOKENS = 256


def make_model() -> nn.Module:
    return GPT2LMHeadModel(GPT2Config(n_positions=TOKENS, use_cache=False))


def make_batch(batch_size: int) -> dict[str, torch.Tensor]:
    ids = torch.randint(0, 50257, (batch_size, TOKENS))
    return {"input_ids": ids, "labels": ids}


def loss(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    return model(**batch).loss


def make_optimizer(params: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(params, lr=1e-4)


def shorten(batch: dict[str, torch.Tensor], share: float) -> dict[str, torch.Tensor]:
    """The batch of shorter texts that a real data set has between long ones."""
    ids = batch["input_ids"][:, : round(TOKENS * share)].contiguous()
    return {"input_ids": ids, "labels": ids}
