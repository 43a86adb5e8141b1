"""A loss that is 2**SHIFT times too large for fp16: `overflow.py SHIFT`. The scaler skips steps until it is small."""

import sys

import torch
from torch import nn

SHIFT = int(sys.argv[1])


def make_model() -> nn.Module:
    return nn.Linear(64, 64)


def make_batch(batch_size: int) -> torch.Tensor:
    return torch.ones(batch_size, 64)


def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    output = model(batch)
    assert output.dtype is torch.float16
    return output.float().mean(1).sum() * 2.0**SHIFT
