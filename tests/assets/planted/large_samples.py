"""Samples of 8 MB that two loader workers hand over: `large_samples.py [WORKERS]`; more than 16 of them do not fit."""

import sys
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

WORKERS = int(sys.argv[1]) if len(sys.argv) > 1 else 2
LIMIT = 16
FLOATS = 2_000_000


class Samples(Dataset[torch.Tensor]):
    """40 of them."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((FLOATS,), float(index))


def make_dataset() -> DataLoader[Any]:
    return DataLoader(Samples(), batch_size=16, num_workers=WORKERS)


def make_model() -> nn.Module:
    return nn.Linear(1, 1)


def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    if len(batch) > LIMIT:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
    return model(batch[:, :1]).mean()
