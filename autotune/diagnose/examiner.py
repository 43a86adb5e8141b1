"""How a section of a diagnosis looks at a training from inside a probe process."""

from typing import Protocol

import torch

from autotune.workload.task import Workload


class Training(Protocol):
    """A training that is stepped by whoever looks at it. Built, on its device, under its memory limit, not yet stepped."""

    workload: Workload
    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    device: torch.device
    batch_size: int
    compiled: bool
    """Whether ``torch.compile`` is at work, which must not be looked into."""
    limit_bytes: int
    """The budget."""
    cap_bytes: int | None
    """What the allocator (CUDA) or the process (CPU) may hold of it."""

    def step(self, share: float = 1.0) -> None:
        """One whole optimizer step on a fresh batch, as a probe takes it. Raises whatever the user's code raises.

        ``share``: of the full length; below 1 only where the workload varies.
        """
        ...

    def held_bytes(self) -> int:
        """What the allocator (CUDA) or the process (CPU, resident pages) holds now, less the batch itself."""
        ...

    def peak_bytes(self) -> int:
        """The most that was allocated within the last step, batch included; on the CPU all that its limit counts."""
        ...

    def peak_reserved_bytes(self) -> int:
        """The most that the allocator held within the last step; 0 on the CPU."""
        ...

    def batch_bytes(self) -> int:
        """Of the last batch, where the model finds it."""
        ...

    def graphs_kept(self) -> int:
        """Losses of earlier steps that are alive with their graph."""
        ...

    def phase(self) -> str:
        """Of the step that is being taken: ``data``, ``forward``, ``backward``, ``optimizer``."""
        ...

    @property
    def batch(self) -> object:
        """The one that lies on the device now; None before the first step."""
        ...

    def allocated_bytes(self) -> int:
        """What the allocator (CUDA) or the process (CPU) holds now, with the batch."""
        ...

    def non_pytorch_bytes(self) -> int | None:
        """Device memory of the process outside of the allocator; None on the CPU."""
        ...

    def retries(self) -> int:
        """Allocator retries so far."""
        ...


class Examiner(Protocol):
    """One section's observer. Made anew in each process."""

    def begin(self, device: torch.device) -> None:
        """The device is started; the model is not made yet."""
        ...

    def run(self, training: Training) -> None:
        """Step the training and look at it."""
        ...

    def facts(self) -> dict[str, object]:
        """What was seen as the fields of the section's wire noun (``evidence.py``), JSON-able.

        Asked for at any moment, also after the training or this examiner has failed.
        """
        ...
