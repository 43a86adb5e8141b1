"""What ``check`` found, as a value."""

from dataclasses import dataclass
from pathlib import Path

from autotune.errors import CheckFailed
from autotune.model import Budget, Machine, Plan, ProbeResult, WorkloadInfo
from autotune.report.check import change_words
from autotune.report.fields import Change, Check, Document


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A recommendation held against what is here."""

    path: Path
    document: Document
    """The file's content, with what was found in ``check``."""
    plan: Plan
    """What the search that made the file was asked for; asking it again makes a new one."""
    workload: WorkloadInfo
    machine: Machine
    budget: Budget | None
    """None where the check ended before it was known."""
    probes: tuple[ProbeResult, ...]
    """Those that were run: none, one, or more if the first proved nothing."""
    failure: CheckFailed | None
    """Why the file does not hold here; None = it does."""

    @property
    def ok(self) -> bool:
        """Whether it holds."""
        return self.failure is None

    @property
    def found(self) -> Check:
        """What was found."""
        assert self.document.check is not None, "set by whoever makes this"
        return self.document.check

    @property
    def changes(self) -> tuple[Change, ...]:
        """What is not as the file says, whether or not it matters."""
        return self.found.changes

    @property
    def notes(self) -> tuple[str, ...]:
        """What changed and does not matter for whether the file holds, in words."""
        return tuple(change_words(change) for change in self.changes if not change.stale)
