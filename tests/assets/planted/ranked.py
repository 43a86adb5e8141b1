"""Ranks that train together, and one of them goes wrong: `ranked.py KIND LIMIT RANK`. LIMIT is the largest batch that works;
of `heavy` it is the MiB that a sample takes in this rank, in the others it takes one.

With `ranked.py @FILE` each child reads its arguments, a JSON list, from the file: what the process that loaded this file is
good for changes with it.
"""

import json
import os
import signal
import sys
import time

import torch
from torch import nn

KIND, LIMIT, RANK = "fine", 0, 1


def read(arguments: list[str]) -> None:
    """KIND, LIMIT and RANK."""
    global KIND, LIMIT, RANK
    KIND, LIMIT, RANK = arguments[0], int(arguments[1]), int(arguments[2])


def read_file() -> None:
    """Those of this process."""
    with open(sys.argv[1].removeprefix("@")) as file:
        read(json.load(file))


if sys.argv[1].startswith("@"):
    os.register_at_fork(after_in_child=read_file)
    read_file()
else:
    read(sys.argv[1:])

MIB = 1 << 20
held: list[torch.Tensor] = []
told = (0, 1)
"""Rank and number of ranks, as make_batch is told."""
size, steps = 0, 0


def wrong(where: str) -> None:
    """Go wrong here, in the second step, if this is the rank and the size is too large."""
    if size <= LIMIT or told[0] != RANK or KIND.partition(":")[2] not in ("", where) or steps < 2:
        return
    kind = KIND.partition(":")[0]
    if kind == "oom":
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")
    if kind == "error":
        raise NameError("name 'lable' is not defined")
    if kind == "sigkill":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "hang":
        time.sleep(3600)


class Watched(torch.autograd.Function):
    """Passes everything on; its backward pass may go wrong."""

    @staticmethod
    def forward(ctx, value):
        return value.clone()

    @staticmethod
    def backward(ctx, gradient):
        wrong("backward")
        return gradient


class Shift(nn.Module):
    """Holds a buffer, which every forward pass takes from the first rank."""

    def __init__(self):
        super().__init__()
        self.register_buffer("by", torch.zeros(8))

    def forward(self, value):
        return value + self.by


def make_model() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 8), Shift(), nn.ReLU(), nn.Linear(8, 1))


def make_batch(batch_size: int, rank: int, world_size: int) -> torch.Tensor:
    global told, size, steps
    assert rank == int(os.environ.get("RANK", "0")), "told one rank, and started as another"
    told, size, steps = (rank, world_size), batch_size, steps + 1
    if KIND == "unequal" and rank == RANK:
        return torch.randn(min(batch_size, LIMIT), 8)  # its share of the data has no more
    if KIND == "removed" and "RANK" in os.environ:
        os.remove(os.environ["PLANTED_FILE"])
    if KIND == "heavy":
        held.clear()
        held.append(torch.ones((LIMIT if rank == RANK else 1) * batch_size * MIB, dtype=torch.uint8))
    return torch.randn(batch_size, 8)


def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    wrong("forward")
    if KIND == "bypass" and told[0] == RANK and steps == 3:
        return sum(parameter.sum() for parameter in model.parameters())
    return Watched.apply(model(batch)).square().mean()


def make_optimizer(parameters):
    optimizer = torch.optim.SGD(parameters, lr=1e-3)
    optimizer.register_step_pre_hook(lambda *_: wrong("optimizer"))
    return optimizer
