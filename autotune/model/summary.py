"""One search as lists show it, and what cannot be read of the ledger. Needs no other noun."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class SearchState(StrEnum):
    """What became of a search."""

    RUNNING = "running"
    ANSWERED = "answered"
    NO_ANSWER = "no_answer"
    """Nothing fits, or the workload itself fails: final, not resumable."""
    INTERRUPTED = "interrupted"
    """Stopped from outside or out of time; resumable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSummary:
    """One search as a list shows it: what can be told without its documents and probes."""

    id: str
    state: SearchState
    created: datetime
    finished: datetime | None
    message: str
    """Why it ended, in a sentence."""
    owner: str
    """``host:pid:start`` of the process that runs or ran it."""
    based_on: str | None
    workload_ref: str
    device_name: str
    budget_bytes: int
    max_batch: int | None
    recommended_batch: int | None
    probes: int
    """How many of them it has recorded itself."""
    length_bucket: int | None = None
    """Longest samples of the length bucket it was of; None = of all samples."""
    predicted: bool = False
    """Whether one process stood in for ranks that did not run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """A row of the ledger that cannot be read."""

    search_id: str
    """Of the row, or of the search it belongs to."""
    why: str
    """Table, id, field and what is wrong with it."""


def owner_words(owner: str) -> str:
    """The process that runs a search, for people: ``process 4711 on gpu-box``; ``host:pid:start``, or whatever it is."""
    host, pid, _ = owner.rsplit(":", 2) if owner.count(":") >= 2 else ("", "", "")
    return f"process {pid or '?'} on {host or '?'}"
