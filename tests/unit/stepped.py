"""A training that observers of a diagnosis may step, in this process and on the CPU: what ``probe.examining`` makes, without
its process."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import torch
from torch import nn

from autotune.model import Phase
from autotune.workload.task import Workload

HELD = 100_000_000
"""What the process is said to hold: real figures are the kernel's, and not exact."""


class Stepped:
    """See ``diagnose.examiner.Training``."""

    limit_bytes = 1 << 40
    cap_bytes: int | None = None
    compiled = False

    def __init__(
        self,
        model: nn.Module,
        make_batch: Callable[[], object],
        loss: Callable[[nn.Module, object], torch.Tensor],
        optimizer: torch.optim.Optimizer | None = None,
    ) -> None:
        self.workload = cast(Workload, SimpleNamespace(varies=False))
        self.model = model
        self.optimizer = optimizer or torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
        self.device = torch.device("cpu")
        self.batch_size = 4
        self.batch: object = None
        self._phase: Phase | None = None
        self.shares: list[float] = []
        """Of each step so far."""
        self._make_batch, self._loss = make_batch, loss

    def step(self, share: float = 1.0) -> None:
        self._phase = Phase.DATA
        self.batch = self._make_batch()
        self.optimizer.zero_grad()
        self._phase = Phase.FORWARD
        loss = self._loss(self.model, self.batch)
        self._phase = Phase.BACKWARD
        torch.autograd.backward(loss)
        self._phase = Phase.OPTIMIZER
        self.optimizer.step()
        self.shares.append(share)

    def held_bytes(self) -> int:
        return HELD

    def peak_bytes(self) -> int:
        return 2 * HELD

    def peak_reserved_bytes(self) -> int:
        return 3 * HELD

    def allocated_bytes(self) -> int:
        return HELD

    def non_pytorch_bytes(self) -> int | None:
        return None

    def batch_bytes(self) -> int:
        return 0

    def graphs_kept(self) -> int:
        return 0

    def phase(self) -> str:
        return str(self._phase or "")

    def retries(self) -> int:
        return 0
