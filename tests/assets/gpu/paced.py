"""A small model with blocks, attention and a convolution, whose steps take planted times: half as long in half precision.

What a step takes does not depend on how fast a device is, so that searches on one and on two of them come to one answer.
"""

import time

import torch
from torch import nn
from torch.nn import functional

PACE_S = 0.04
HEADS, LENGTH, WIDTH = 4, 32, 64


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.mix(x).chunk(3, dim=-1))
        mixed = functional.scaled_dot_product_attention(q, k, v)
        return x + self.out(mixed.transpose(1, 2).flatten(2))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 1, 3, padding=1)
        self.blocks = nn.ModuleList(Block() for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x.unsqueeze(1)).squeeze(1)
        for block in self.blocks:
            x = block(x)
        return x


def make_model() -> nn.Module:
    return Model()


def make_batch(batch_size: int) -> torch.Tensor:
    return torch.randn(batch_size, LENGTH, WIDTH)


def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    half = torch.is_autocast_enabled(batch.device.type)
    time.sleep(PACE_S / 2 if half else PACE_S)
    return model(batch).float().pow(2).mean()
