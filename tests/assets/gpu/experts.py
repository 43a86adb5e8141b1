"""A small mixture of experts: how many tokens each of them gets follows from the data, and with them the sizes of tensors."""

import torch
from torch import nn
from torch.nn import functional

WIDTH, EXPERTS, TOKENS = 512, 8, 256


class Experts(nn.Module):
    """Each token goes through the two experts that want it most."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, EXPERTS)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)) for _ in range(EXPERTS)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = x.flatten(0, 1)
        weights, wanted = self.router(tokens).softmax(-1).topk(2, -1)
        out = torch.zeros_like(tokens)
        for number, expert in enumerate(self.experts):
            rows, choice = (wanted == number).nonzero(as_tuple=True)
            out = out.index_add(0, rows, expert(tokens[rows]) * weights[rows, choice, None])
        return x + out.view_as(x)


def make_model() -> nn.Module:
    return nn.Sequential(*(Experts() for _ in range(4)))


def make_batch(batch_size: int) -> torch.Tensor:
    return torch.randn(batch_size, TOKENS, WIDTH) + torch.randn(batch_size, 1, WIDTH)


def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    return functional.mse_loss(model(batch), batch.roll(1, 1))
