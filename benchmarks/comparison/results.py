"""The document of the comparison: what each finder answered, the true limits, who survived. Read, written, merged."""

from collections.abc import Sequence
from typing import Literal

from pydantic import ConfigDict, Field

from benchmarks.common.documents import Part, Run, Status, check_alike


class _Part(Part):
    model_config = ConfigDict(strict=False, extra="ignore")


class Trial(_Part):
    """One size a finder tried."""

    size: int
    outcome: str
    """``fits``, ``out_of_memory`` or another word of autotune's."""
    seconds: float


class Prediction(_Part):
    """What autotune's memory model said before any large probe."""

    limit: int | None = None
    allocated_bytes: int | None = None
    """At the certified size, as the two below."""
    reserved_bytes: int | None = None


class Cell(_Part):
    """One finder on one workload."""

    status: Status
    answer: int | None = None
    """What the finder returned; 0 if that was it."""
    seconds: float | None = None
    """Wall time of its process from start to exit; of brute force the time of its probes."""
    trials: tuple[Trial, ...] = ()
    message: str = ""
    """Why there is no answer."""
    prediction: Prediction | None = None
    measured_allocated_bytes: int | None = None
    """Peak of the probe that certified autotune's answer."""
    measured_reserved_bytes: int | None = None
    exact: bool = True
    """Brute force: whether a larger size was seen to fail."""

    @property
    def out_of_memory(self) -> int:
        """Trials that ran out of memory."""
        return sum(trial.outcome in ("out_of_memory", "host_out_of_memory") for trial in self.trials)

    def above(self, size: float) -> int:
        """Trials of more than this many samples."""
        return sum(trial.size > size for trial in self.trials)


class Survival(_Part):
    """Many steps of training at one batch size."""

    batch: int
    survived: bool
    steps: int
    """Optimizer steps that were done."""
    retries: int
    """Of the allocator, in all steps; 0 on the CPU."""
    peak_reserved_bytes: int | None
    seconds: float
    message: str


class Entry(_Part):
    """One workload."""

    outside_bytes: int | None = None
    """Memory outside PyTorch's allocator, added to the cap for autotune's device-wide limit."""
    finders: dict[str, Cell] = Field(default_factory=dict)
    survival: dict[int, Survival] = Field(default_factory=dict)


class Results(_Part):
    """All of it."""

    what = "results file of this comparison"
    kind: Literal["finders"] = "finders"
    cap_bytes: int
    """Of PyTorch's allocator."""
    survival_steps: int
    runs: tuple[Run, ...] = ()
    workloads: dict[str, Entry] = Field(default_factory=dict)

    def entry(self, workload: str) -> Entry:
        """What is known of a workload."""
        return self.workloads.get(workload, Entry())

    def with_run(self, run: Run) -> "Results":
        """One more run noted."""
        return self.model_copy(update={"runs": (*self.runs, run)})

    def with_entry(self, workload: str, entry: Entry) -> "Results":
        """The workload's entry replaced."""
        return self.model_copy(update={"workloads": {**self.workloads, workload: entry}})

    def with_cell(self, workload: str, finder: str, cell: Cell) -> "Results":
        """One finished cell more."""
        entry = self.entry(workload)
        finders = {**entry.finders, finder: cell}
        return self.with_entry(workload, entry.model_copy(update={"finders": finders}))

    def with_survival(self, workload: str, survival: Survival) -> "Results":
        """One finished survival run more."""
        entry = self.entry(workload)
        known = {**entry.survival, survival.batch: survival}
        return self.with_entry(workload, entry.model_copy(update={"survival": known}))


def merge(documents: Sequence[Results]) -> Results:
    """All cells of all documents; of two results of one cell, the finished one, else the one of the later document.

    Raises:
        BadResults: they were made under different caps or with different numbers of survival steps.
    """
    check_alike(documents, "cap_bytes", "survival_steps")
    merged = documents[0]
    for other in documents[1:]:
        merged = merged.model_copy(update={"runs": merged.runs + other.runs})
        for workload, entry in other.workloads.items():
            merged = merged.with_entry(workload, _both(merged.entry(workload), entry))
    return merged


def _both(one: Entry, two: Entry) -> Entry:
    finders = dict(one.finders)
    for finder, cell in two.finders.items():
        if cell.status is Status.DONE or finder not in finders or finders[finder].status is not Status.DONE:
            finders[finder] = cell
    outside = two.outside_bytes if two.outside_bytes is not None else one.outside_bytes
    return Entry(outside_bytes=outside, finders=finders, survival={**one.survival, **two.survival})
