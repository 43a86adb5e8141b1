"""How a loop of the user's own runs a step: the same calls as ``autotune.Tuned`` has, with nothing changed."""

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import torch


class Applies(Protocol):
    """What a guard needs to know of how a step is run; ``autotune.Tuned`` is one."""

    @property
    def accumulate(self) -> int:
        """Micro-batches of an optimizer step."""

    @property
    def scaler(self) -> torch.amp.GradScaler | None:
        """Of gradients, under fp16."""

    @property
    def certified_bytes(self) -> int | None:
        """Device-wide peak that a probe measured; None = none did."""

    def autocast(self) -> AbstractContextManager[object]:
        """Of the forward pass and the loss."""

    def backward(self, loss: torch.Tensor) -> None:
        """Divide by ``accumulate``, scale, back-propagate."""

    def step(self, optimizer: torch.optim.Optimizer) -> bool:
        """Take the optimizer step; False where the scaler refused."""

    def zero_grad(self, optimizer: torch.optim.Optimizer) -> None:
        """Clear the gradients."""


class Plain:
    """PyTorch's own calls."""

    certified_bytes: int | None = None

    def __init__(self, accumulate: int, scaler: torch.amp.GradScaler | None) -> None:
        self.accumulate = accumulate
        self.scaler = scaler

    def autocast(self) -> AbstractContextManager[object]:
        """The loss function brings its own."""
        return nullcontext()

    def backward(self, loss: torch.Tensor) -> None:
        if self.accumulate > 1:
            loss = loss / self.accumulate
        torch.autograd.backward(loss if self.scaler is None else self.scaler.scale(loss))

    def step(self, optimizer: torch.optim.Optimizer) -> bool:
        if self.scaler is None:
            optimizer.step()
            return True
        before = self.scaler.get_scale()
        self.scaler.step(optimizer)
        self.scaler.update()
        return bool(self.scaler.get_scale() >= before)

    def zero_grad(self, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad()
