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
from autotune.model.words import Outcome
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
class Unanswered:
    """A section that was asked for and has no answer, or not a whole one, and why."""

    section: Section
    kind: str
    """Of the error that ended it, as in ``autotune.errors``: ``nothing_fits``, ``workload``, ``environment`` …"""
    exit_code: int
    """Of that error."""
    message: str
    hint: str = ""
    """What to type; empty where nothing can be done."""
    detail: str = ""
    """The user's own traceback; empty where their code did not fail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """All of it. A section that was not asked for, or has no answer, is None."""

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
    unanswered: tuple[Unanswered, ...] = ()
    """In the order of the sections."""

    @property
    def wrong(self) -> bool:
        """Memory grows or lies in pieces, or it ran out and a section says more of that than that it did."""
        pieces, files, advised = self.fragmentation, self.snapshots, self.advised
        return (
            (self.leaks is not None and not self.leaks.clean)
            or (pieces is not None and (pieces.flagged or pieces.seen_to_die))
            or (files is not None and bool(files.out_of_memory))
            or (advised is not None and any(one.survives for one in advised.advice))
        )

    @property
    def clean(self) -> bool:
        """All that was asked for has an answer, and nothing is wrong."""
        return not self.wrong and not self.unanswered

    @property
    def empty(self) -> bool:
        """No section says anything of the training: at most that there is nothing to look at on this device."""
        pieces, files, advised = self.fragmentation, self.snapshots, self.advised
        return (
            not self.wrong
            and self.leaks is None
            and self.peak is None
            and (pieces is None or pieces.outcome is not Outcome.FITS or not pieces.evidence.steps)
            and (files is None or not files.peak)
            and (advised is None or advised.peak_bytes is None)
        )
