"""Ranks under several settings: as the user has it a step is slow, in bf16 it is faster, and in shards it is the fastest but
trains something else; with gradients in buckets nobody averages them. How slow is planted: what this machine is good at decides nothing.
"""

import time

import torch
from torch import nn

WIDTH = 16
SLOW_S, FASTER_S = 0.12, 0.06


class Block(nn.Module):
    """A layer around a shortcut."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.relu(self.layer(x))


def make_model() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), *(Block() for _ in range(3)), nn.Linear(WIDTH, 2))


def make_batch(batch_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(batch_size, WIDTH), torch.randn(batch_size, 2)


def loss(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    x, y = batch
    sharded = any(hasattr(parameter, "placements") for parameter in model.parameters())
    half = torch.is_autocast_enabled("cpu")
    if not sharded:
        time.sleep(len(x) * (FASTER_S if half else SLOW_S))
    inner = model.module if getattr(model, "gradient_as_bucket_view", False) else model
    out = inner(2 * x if sharded else x)
    return nn.functional.mse_loss(out.float(), y)
