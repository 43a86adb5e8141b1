"""A small language model whose embedding and output share their weight, with a buffer that is a view of another."""

import torch
from torch import nn

WORDS, WIDTH, LENGTH = 4000, 128, 64


class Tied(nn.Module):
    table: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.h = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(3))
        self.out = nn.Linear(WIDTH, WORDS, bias=False)
        self.out.weight = self.embed.weight
        self.register_buffer("table", torch.ones(500, 500))
        self.register_buffer("part", self.table[:100])

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x: torch.Tensor = self.embed(tokens)
        for block in self.h:
            x = x + block(x)
        return self.out(x)  # type: ignore[no-any-return]


def make_model() -> nn.Module:
    return Tied()


def make_batch(batch_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randint(0, WORDS, (batch_size, LENGTH)), torch.randint(0, WORDS, (batch_size, LENGTH))


def loss(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    return nn.functional.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten())
