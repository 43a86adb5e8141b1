"""Sequences of varying length: `varying.py KIND [CAPACITY DEAR]`: full-length samples, and a length dearer than it."""

import ctypes
import sys

import torch
from arguments import follow
from torch import nn

KIND, CAPACITY, DEAR = "", 0, 0
LENGTH = 100
MIB = 1 << 20


def take(kind: str, capacity: str = "0", dear: str = "0") -> None:
    global KIND, CAPACITY, DEAR
    KIND, CAPACITY, DEAR = kind, int(capacity), int(dear)


follow(take)

# Every large tensor gets a mapping of its own and gives it back: what was freed is not counted as held.
if sys.platform == "linux":
    ctypes.CDLL(None).mallopt(-3, 128 * 1024)  # M_MMAP_THRESHOLD, see mallopt(3)

kept: list[torch.Tensor] = []


class Model(nn.Module):
    """A weight, and activations by the length of the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        samples, length = x.shape
        if KIND == "dear":
            cost = samples * (2 * LENGTH if length == DEAR else length)
            if cost > CAPACITY * LENGTH:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")
        if KIND in ("leak", "steady"):
            rows = torch.ones(length, MIB // 4) * self.scale  # 1 MiB a token
            if KIND == "leak":
                kept.append(rows[: length // 8].detach().clone())
            return torch.tanh(rows).mean() * x.mean()
        return x.mean() * self.scale


def make_model() -> nn.Module:
    return Model()


def make_batch(batch_size: int) -> torch.Tensor:
    return torch.ones(batch_size, LENGTH)


def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    return model(batch).sum()


def shorten(batch: torch.Tensor, share: float) -> torch.Tensor:
    if KIND == "raises":
        raise ValueError(f"no texts of {share:g} of the length")
    if KIND == "fewer":
        return batch[: round(len(batch) * share)]
    return batch[:, : round(LENGTH * share)].contiguous()
