"""What the tool knows of one worker: the process, what it said of its machine, and the probe it runs."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from autotune.executors.documents import plain, read
from autotune.executors.host import Message
from autotune.executors.link import Link
from autotune.model import Budget, Machine, Plan, Question, WorkloadInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a worker turned out to be."""

    host: str
    workload: WorkloadInfo
    machine: Machine
    budget: Budget
    """What a job may use there."""

    @classmethod
    def read(cls, message: Message, what: str) -> "Place":
        """What a worker says when it is ready.

        Raises:
            EnvironmentTrouble: it is in another form.
        """
        return cls(
            host=str(message.get("host", ""))[:100],
            workload=read(WorkloadInfo, message.get("workload"), what),
            machine=read(Machine, message.get("machine"), what),
            budget=read(Budget, message.get("budget"), what),
        )

    @property
    def text(self) -> str:
        """``NVIDIA L4 (cuda:1 on node7)``."""
        return f"{self.machine.device_name} ({self.machine.torch_device} on {self.host})"


@dataclass(frozen=True, slots=True)
class Asked:
    """A probe for whichever worker is idle first."""

    ticket: int
    question: Question
    budget: Budget
    reserve_bytes: int


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

    def open(self, plan: Plan, length_buckets: tuple[int, ...], left_s: float | None) -> None:
        """Have it load the workload and say where it is; ``left_s``: of the search's time."""
        if self.link is None:
            return
        self.place = None
        plan = replace(plan, device=self.device)
        self.link.send({"kind": "open", "plan": plain(plan), "length_buckets": list(length_buckets), "left_s": left_s})

    def begin(self, asked: Asked, longest_s: float, left_s: float | None) -> None:
        """Have it run a probe, which takes no longer than so long."""
        assert self.link is not None
        self.ticket, self.deadline = asked.ticket, time.monotonic() + longest_s
        self.link.send(
            {
                "kind": "probe",
                "question": plain(asked.question),
                "budget": plain(asked.budget),
                "reserve_bytes": asked.reserve_bytes,
                "left_s": left_s,
            }
        )

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
