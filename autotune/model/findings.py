"""What ``autotune diagnose`` found out about the memory of a training, section by section."""

from dataclasses import dataclass, field
from enum import StrEnum

from autotune.model.leaks import Leaks
from autotune.model.machine import Budget, Machine
from autotune.model.settings import Settings
from autotune.model.workload import WorkloadInfo


class Section(StrEnum):
    """One part of a diagnosis. Each is measured in a process of its own."""

    LEAKS = "leaks"
    """What grows from step to step, where it is made and kept, and when it would end the training."""
    COMPOSITION = "composition"
    FRAGMENTATION = "fragmentation"
    SNAPSHOT = "snapshot"


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """All of it. A section that was not asked for is None."""

    workload: WorkloadInfo
    machine: Machine
    budget: Budget
    batch_size: int
    batch_from: str
    """Where the size comes from, in words."""
    settings: Settings = field(default_factory=Settings)
    """What the training ran with."""
    leaks: Leaks | None = None

    @property
    def clean(self) -> bool:
        """Nothing that was looked for is wrong."""
        return self.leaks is None or self.leaks.clean
