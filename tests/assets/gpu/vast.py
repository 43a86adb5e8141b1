"""Much memory of the device for little of the host and little time: 64 MiB a sample and layer, made where it is used."""

import torch
from torch import nn

ROWS = 16384
WIDTH = 1024


class Vast(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Parameter(torch.ones(ROWS, 1))
        self.scale = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x.unsqueeze(1) * self.rows) * self.scale


def make_model() -> nn.Module:
    return Vast()


def make_batch(batch_size: int) -> torch.Tensor:
    return torch.randn(batch_size, WIDTH)


def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    return model(batch).mean()
