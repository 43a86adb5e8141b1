"""A data set whose worker processes keep something of every sample, or only seem to: `growing_data.py @FILE`."""

import os
import sys
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset

KIND = sys.argv[1]
WIDTH = 16 * 1024
UNIT = 4 * WIDTH
"""Bytes of a sample: 64 KiB."""


def read_kind() -> None:
    """That of this process."""
    global KIND
    with open(sys.argv[1].removeprefix("@")) as file:
        KIND = file.read().strip()


if KIND.startswith("@"):
    os.register_at_fork(after_in_child=read_kind)

CACHE: dict[Any, Any] = {}
KEPT: list[Any] = []
number = 0


class Samples(Dataset[torch.Tensor]):
    """Made when asked for."""

    def __init__(self) -> None:
        self.seen: list[torch.Tensor] = []

    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> torch.Tensor:
        global number
        number += 1
        sample = torch.full((WIDTH,), float(index))
        if KIND == "workers: a list of the data set":
            self.seen.append(sample.clone())
        elif KIND == "workers: a dict of the module":
            CACHE[number] = sample.clone()
        elif KIND == "a cache of the workers that is full":
            CACHE.setdefault(number % 4, sample.clone())
        return sample


def make_dataset() -> Samples:
    return Samples()


def collate(samples: list[torch.Tensor]) -> torch.Tensor:
    if KIND == "workers: batches":
        KEPT.append(torch.stack(samples))
    return torch.stack(samples)


def make_model() -> nn.Module:
    return nn.Linear(WIDTH, 1)


def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    result: torch.Tensor = model(batch).pow(2).mean()
    return result
