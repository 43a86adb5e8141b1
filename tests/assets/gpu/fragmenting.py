"""`fragmenting.py KIND`: sequences of alternating lengths (`varying`) or always the longest (`constant`), and one large
buffer a step that is let go and asked for again. Varying lengths leave the allocator with pieces too small for it."""

import itertools
import sys

import torch
from torch import nn

WIDTH = 512
LENGTHS = (600, 1050, 190, 870, 330, 1200) if sys.argv[1] == "varying" else (1200,)
steps = itertools.count()


def make_model() -> nn.Module:
    return nn.Sequential(*[layer for _ in range(6) for layer in (nn.Linear(WIDTH, WIDTH), nn.GELU())])


def make_batch(batch_size: int) -> torch.Tensor:
    return torch.randn(batch_size, LENGTHS[next(steps) % len(LENGTHS)], WIDTH)


def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    out = model(batch)
    buffer = torch.zeros(len(batch), 8192, WIDTH, device=batch.device)
    return out.pow(2).mean() + buffer.sum()
