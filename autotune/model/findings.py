"""What ``autotune diagnose`` found out about the memory of a training, section by section."""

from dataclasses import dataclass, field
from enum import StrEnum

from autotune.model.advice import Advised
from autotune.model.fragments import Fragmentation
from autotune.model.leaks import Leaks
from autotune.model.machine import Budget, Machine
from autotune.model.peak import Peak
from autotune.model.settings import Settings
from autotune.model.snapshots import Snapshots
from autotune.model.workload import WorkloadInfo


class Section(StrEnum):
    """One part of a diagnosis. Each is measured in a process of its own."""

    LEAKS = "leaks"
    """What grows from step to step, where it is made and kept, and when it would end the training."""
    COMPOSITION = "composition"
    """What the peak of a step consists of, by kind, module and operator."""
    FRAGMENTATION = "fragmentation"
    """Whether memory is lost in pieces, and which configuration of the allocator helps."""
    SNAPSHOT = "snapshot"
    """Files for PyTorch's memory viewer."""
    ADVICE = "advice"
    """What may be changed to need less memory, tried by probes of the ordinary forms."""


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
    peak: Peak | None = None
    """Of the section ``composition``."""
    fragmentation: Fragmentation | None = None
    snapshots: Snapshots | None = None
    advised: Advised | None = None
    unanswered: tuple[str, ...] = ()
    """Sections whose training died of memory before they could answer, each with what happened; others tell of that."""

    @property
    def clean(self) -> bool:
        """Nothing that was looked for is wrong."""
        whole = self.fragmentation is None or not self.fragmentation.flagged
        return (self.leaks is None or self.leaks.clean) and whole and not self.unanswered
