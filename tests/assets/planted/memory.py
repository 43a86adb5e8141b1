"""A workload that really uses memory, in a known shape: `memory.py KIND`."""

import ctypes
import mmap
import sys

import torch
from torch import nn

KIND, _, SIZE = sys.argv[1].partition(":")
MIB = 1 << 20
FLOATS = MIB // 4
"""Floats in one MiB."""
FLAT_UP_TO = 16
SHARED_ABOVE = 5
SHARED_BYTES = 4 << 30

# Every large tensor gets a mapping of its own and gives it back, so that the heap does not fragment by chance.
if sys.platform == "linux":
    ctypes.CDLL(None).mallopt(-3, 128 * 1024)  # M_MMAP_THRESHOLD, see mallopt(3)

held: list[mmap.mmap] = []


class Rows(nn.Module):
    """``flat``, ``rows``: about 4 MiB a sample; ``flat`` never takes less than 16 samples do."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = torch.ones(max(len(x), FLAT_UP_TO) if KIND == "flat" else len(x), FLOATS)
        return torch.tanh(rows * self.scale)


class Pairs(Rows):
    """``quadratic``: about 4 MiB a pair of samples, the similarity of each with each, feature by feature."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        features = torch.ones(FLOATS) * self.scale
        return torch.tanh((x[:, None, :] + x[None, :, :]) * features)


class Heavy(Rows):
    """``adamw:N``, ``sgd:N``: N MiB of weights beside the rows."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.ones(int(SIZE) * FLOATS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * self.weights[:FLOATS]


class Shared(nn.Module):
    """``shared``: fills shared memory above a size, which no limit of the data segment counts and nothing raises for."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if len(x) > SHARED_ABOVE:
            held.append(mmap.mmap(-1, SHARED_BYTES, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS))
            for at in range(0, SHARED_BYTES, MIB):
                held[-1][at : at + MIB] = b"\1" * MIB
        return self.linear(x)


MODELS = {"quadratic": Pairs, "adamw": Heavy, "sgd": Heavy, "shared": Shared}


def make_model() -> nn.Module:
    return MODELS.get(KIND, Rows)()


def make_batch(batch_size: int) -> torch.Tensor:
    return torch.ones(batch_size, 1)


def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    return model(batch).mean()


def make_optimizer(params: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(params) if KIND == "adamw" else torch.optim.SGD(params, lr=0.01)


if KIND == "keeps":

    def evaluate(model: nn.Module, batch: torch.Tensor) -> None:
        """``keeps:N``: like ``rows``, with an evaluation of N steps that holds every output, with its graph."""
        outputs = [model(batch) for _ in range(int(SIZE))]
        del outputs
