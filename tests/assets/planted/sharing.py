"""A model with repeated blocks, for ranks that share it."""

import sys

import torch
from torch import nn

WIDTH = int(sys.argv[1]) if len(sys.argv) > 1 else 128


class Block(nn.Module):
    """Two layers around a shortcut."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(x)))


def make_model() -> nn.Module:
    return nn.Sequential(nn.Linear(64, WIDTH), *(Block() for _ in range(4)), nn.Linear(WIDTH, 2))


def make_plan() -> dict[str, str]:
    return {"*.up": "colwise", "*.down": "rowwise"}


def make_batch(batch_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(batch_size, 64), torch.randn(batch_size, 2)
