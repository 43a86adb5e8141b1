"""GPT-2 124M from its configuration (random weights), texts packed to 1024 tokens without padding, AdamW.

As gpt2.py, but no batch is ever shorter, so that compiling for one shape pays. Needs transformers.
"""

import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

TOKENS = 1024


def make_model() -> nn.Module:
    return GPT2LMHeadModel(GPT2Config(n_positions=TOKENS, use_cache=False))


def make_batch(batch_size: int) -> dict[str, torch.Tensor]:
    ids = torch.randint(0, 50257, (batch_size, TOKENS))
    return {"input_ids": ids, "labels": ids}


def loss(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    return model(**batch).loss


def make_optimizer(params: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(params, lr=1e-4)
