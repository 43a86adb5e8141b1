"""The document of what was compared with the grid: autotune's searches, its peer, trainings with and without the answer."""

from collections.abc import Sequence
from typing import Any, Literal, TypeVar

from pydantic import Field

from benchmarks.common.documents import Answer, Part, Run, check_alike

GRID_SPACE = "grid"
DEFAULT_SPACE = "default"
SPACES = (GRID_SPACE, DEFAULT_SPACE)
"""Searches: over the knobs of the grid, and over whatever autotune searches without being told."""
NO_CONFIG = "none"
"""The training without a recommendation."""
CLOSE = 0.05
"""Share by which a training may differ from the evidence."""


class Trial(Part):
    """One probe of a search."""

    settings: dict[str, Any]
    """Fields that differ from their defaults."""
    batch: int
    form: str
    reason: str
    outcome: str
    seconds: float
    samples_per_second: float | None
    first_step_seconds: float | None


AnswerT = TypeVar("AnswerT", bound=Answer)


class Search(Answer):
    """``autotune search`` as a whole command with an empty ledger and an empty cache of the compiler."""

    settings: dict[str, str] = Field(default_factory=dict)
    """What it changes of the user's own."""
    batch: int | None = None
    """Recommended."""
    accumulate: int = 1
    samples_per_second: float | None = None
    baseline_samples_per_second: float | None = None
    baseline_batch: int | None = None
    """Largest batch that was certified under the user's own settings."""
    probe_seconds: float = 0.0
    """Of all probes together."""
    compile_seconds: float = 0.0
    """Of that, what went into compiling."""
    out_of_memory: int = 0
    """Probes that ran out of memory."""
    trials: tuple[Trial, ...] = ()
    config: dict[str, Any] | None = None
    """The content of autotune.json."""


class PeerTrial(Part):
    """One configuration the peer tried."""

    config: str
    status: str
    ms_per_step: float | None


class Peer(Answer):
    """pytorch-autotune's tuner at the batch that is safe for the user's own settings."""

    search_seconds: float | None = None
    """Of its tuner alone."""
    version: str = ""
    budget: str = "balanced"
    """Of time, in its own words; balanced, its default, is 360 s and what it then still runs."""
    batch: int | None = None
    pick: str = ""
    own_samples_per_second: float | None = None
    """As it measured its pick, on one batch again and again."""
    samples_per_second: float | None = None
    """As timed here, with fresh batches."""
    trials: tuple[PeerTrial, ...] = ()


class Check(Answer):
    """A training of some steps by a plain script, with a recommendation or without."""

    batch: int | None = None
    accumulate: int = 1
    steps: int = 0
    """Optimizer steps that were done."""
    survived: bool = False
    samples_per_second: float | None = None
    expected: float | None = None
    """By the evidence of the recommendation; None without one."""
    first_step_seconds: float | None = None
    retries: int = 0
    """Of the allocator, in all steps."""
    peak_reserved_bytes: int | None = None

    @property
    def deviation(self) -> float | None:
        """Share by which it was faster than the evidence; None where one of the two is not known."""
        if not self.samples_per_second or not self.expected:
            return None
        return self.samples_per_second / self.expected - 1

    @property
    def holds(self) -> bool:
        """Whether the evidence is what a training gets."""
        return self.survived and self.deviation is not None and abs(self.deviation) <= CLOSE


class Entry(Part):
    """One workload."""

    outside_bytes: int | None = None
    """Memory outside PyTorch's allocator, added to the cap for autotune's device-wide limit."""
    searches: dict[str, Search] = Field(default_factory=dict)
    peer: Peer | None = None
    checks: dict[str, Check] = Field(default_factory=dict)
    """By the search whose recommendation was trained with, or ``none``."""

    def best_search(self) -> Search | None:
        """One that is done; that of the grid's knobs first."""
        found = (self.searches.get(space) for space in SPACES)
        return next((search for search in found if search is not None and search.done), None)


class Results(Part):
    """All of it."""

    what = "results file of this benchmark"
    kind: Literal["settings"] = "settings"
    cap_bytes: int
    """Of PyTorch's allocator."""
    check_steps: int
    runs: tuple[Run, ...] = ()
    workloads: dict[str, Entry] = Field(default_factory=dict)

    def entry(self, workload: str) -> Entry:
        """What is known of a workload."""
        return self.workloads.get(workload, Entry())

    def with_run(self, run: Run) -> "Results":
        """One more call of the command."""
        return self.model_copy(update={"runs": (*self.runs, run)})

    def with_entry(self, workload: str, **changes: Any) -> "Results":
        """Fields of the workload's entry replaced."""
        entry = self.entry(workload).model_copy(update=changes)
        return self.model_copy(update={"workloads": {**self.workloads, workload: entry}})


def merge(documents: Sequence[Results]) -> Results:
    """Everything of all documents; of two answers to one question the finished one, else the later one.

    Raises:
        BadResults: they were made under different caps or with different numbers of steps.
    """
    check_alike(documents, "cap_bytes", "check_steps")
    merged = documents[0]
    for other in documents[1:]:
        merged = merged.model_copy(update={"runs": merged.runs + other.runs})
        for workload, new in other.workloads.items():
            old = merged.entry(workload)
            merged = merged.with_entry(
                workload,
                outside_bytes=new.outside_bytes if new.outside_bytes is not None else old.outside_bytes,
                searches=_together(old.searches, new.searches),
                peer=_finished(old.peer, new.peer),
                checks=_together(old.checks, new.checks),
            )
    return merged


def _together(old: dict[str, AnswerT], new: dict[str, AnswerT]) -> dict[str, AnswerT]:
    both = {name: _finished(old.get(name), new.get(name)) for name in {**old, **new}}
    return {name: answer for name, answer in both.items() if answer is not None}


def _finished(old: AnswerT | None, new: AnswerT | None) -> AnswerT | None:
    """The one that is done, else the later one."""
    return new if new is not None and (new.done or old is None or not old.done) else old
