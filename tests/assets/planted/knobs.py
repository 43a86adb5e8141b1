"""A small model of repeated blocks: `knobs.py KIND`. Seeded, with dropout.

KIND: `blocks`; `parts`, whose loss calls the blocks and never the model; `half`, with weights in half precision;
`lengths`, whose batches are 4, 4, 5, 5, ... long; `data`, which reads samples from a data set, 5 ms each; `stream`, whose
data set has ten samples and no index; `single`, without anything that repeats.
"""

import time
from collections.abc import Iterator

import torch
from arguments import follow
from torch import nn

KIND = ""
WIDTH = 8
made = 0


def take(kind: str) -> None:
    global KIND
    KIND = kind


follow(take)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down, self.drop = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.drop(self.down(self.up(x).relu()))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block(), Block()])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def make_model() -> nn.Module:
    if KIND == "single":
        return nn.Linear(WIDTH, 1)
    return Net().half() if KIND == "half" else Net()


def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    if KIND == "parts":
        for block in model.blocks:
            batch = block(batch)
        return batch.square().mean()
    return model(batch).square().mean()


class Samples:
    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.005)
        return torch.full((4, WIDTH), float(index))


class Stream:
    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter(torch.ones(10, 4, WIDTH))


if KIND in ("data", "stream"):

    def make_dataset() -> object:
        return Samples() if KIND == "data" else Stream()

else:

    def make_batch(batch_size: int) -> torch.Tensor:
        global made
        made += 1
        length = 4 + (made > 2) if KIND == "lengths" else 4
        return torch.randn(batch_size, length, WIDTH)
