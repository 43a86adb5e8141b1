"""A workload of milliseconds that tells `tests.faults.striking` at every phase where it is; its limit is 2 samples."""

import os
import sys
import time
from typing import Any

import torch
from torch import nn

from tests.assets.planted.descent import Descent
from tests.faults.striking import reached

LIMIT = 2

reached("load")
answered = False
write = os.write


def write_slowly(fd: int, data: bytes) -> int:
    """As os.write, but for a probe's answer, of which half is written before the rest."""
    global answered
    if b'"kind": "answer"' not in data:
        return write(fd, data)
    written = write(fd, data[: len(data) // 2])
    reached("answer")
    answered = True
    return written


class Leaving:
    """Standard output, flushed for the last time when a probe's process has answered and leaves."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def flush(self) -> None:
        self._stream.flush()
        if answered:
            reached("exit")


os.write = write_slowly
sys.stdout = Leaving(sys.stdout)


class Telling(torch.autograd.Function):
    """Identity that says when the gradient comes back to it."""

    @staticmethod
    def forward(ctx, x):  # type: ignore[no-untyped-def]
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        reached("backward")
        return gradient


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        reached("forward" if self.training else "evaluate")
        if len(x) == 1:
            time.sleep(0.02)  # so that 2 samples are surely the faster batch, on a busy machine as well
        if len(x) > LIMIT:
            raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {len(x)}.00 GiB")
        return Telling.apply(self.linear(x))


class Telltale(Descent):
    """Says when it steps, and when its state is asked for."""

    def step(self, closure: object = None) -> None:  # type: ignore[override]
        reached("optimizer")
        super().step()

    def state_dict(self) -> dict[str, Any]:
        reached("checkpoint")
        return super().state_dict()


def make_model() -> nn.Module:
    reached("build")
    return Model()


def make_batch(batch_size: int) -> torch.Tensor:
    reached("data")
    return torch.ones(batch_size, 4)


def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    return model(batch).pow(2).mean()


def make_optimizer(params: list[nn.Parameter]) -> torch.optim.Optimizer:
    return Telltale(params, {})


def evaluate(model: nn.Module, batch: torch.Tensor) -> None:
    model(batch)
