"""What the tool knows of one worker: the process, what it said of its machine, and the probe it runs."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from autotune.executors.link import Link
from autotune.model import Budget, Machine, WorkloadInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a worker turned out to be."""

    host: str
    workload: WorkloadInfo
    machine: Machine
    budget: Budget
    """What a job may use there."""

    @property
    def text(self) -> str:
        """``NVIDIA L4 (cuda:1 on node7)``."""
        return f"{self.machine.device_name} ({self.machine.torch_device} on {self.host})"


@dataclass(slots=True)
class Worker:
    """One of them."""

    number: int
    """From 1."""
    start: Callable[[], Link]
    device: str
    link: Link | None = None
    place: Place | None = None
    """None until it is ready."""
    ticket: int | None = None
    """Of the probe that it runs."""
    deadline: float = float("inf")
    """Instant on ``time.monotonic`` at which it counts as lost if it has not answered."""
    losses: int = 0
    """In a row, without an answer between."""
    restart_at: float | None = None
    """While it is gone and will be started again."""
    out: str = ""
    """Why it is not used any more; empty = it is."""

    @property
    def name(self) -> str:
        """For people."""
        return f"worker {self.number}" + (f", {self.place.text}" if self.place else "")

    @property
    def is_idle(self) -> bool:
        """Whether it could begin a probe."""
        return not self.out and self.link is not None and self.place is not None and self.ticket is None

    def lose(self, after_s: float) -> None:
        """It is gone, and comes back after so long."""
        if self.link is not None:
            self.link.stop()
        self.link, self.ticket, self.deadline = None, None, float("inf")
        self.losses += 1
        self.restart_at = time.monotonic() + after_s

    def leave_out(self, why: str) -> None:
        """It is not used any more."""
        self.out = why
        if self.link is not None:
            self.link.stop()
        self.link, self.ticket, self.restart_at, self.deadline = None, None, None, float("inf")
