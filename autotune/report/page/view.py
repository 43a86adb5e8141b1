"""What a report shows, as plain values: bytes, seconds and samples per second, and sentences. One view feeds every format.

Texts may be the user's own (file names, messages, commands): whoever writes them into a page escapes them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from autotune.memory.timeline import StepTimeline
from autotune.model import Phase, SearchState

REPORT_VERSION = 1
"""Of this view as JSON. It grows by fields; what a field means does not change under the same number."""


class Role(StrEnum):
    """Whose settings they are."""

    RECOMMENDED = "recommended"
    YOURS = "yours"
    """The user's own, where others are recommended."""
    OTHER = "other"
    REJECTED = "rejected"
    """They train something else: never recommended, however fast."""


class Verdict(StrEnum):
    """What is known of a batch size."""

    CERTIFIED = "certified"
    PREDICTED = "predicted"
    """Safe in the one process that stood in for ranks that were not run."""
    RAN = "ran"
    """Safe in a shorter form of the probe."""
    REFUTED = "refuted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer, with its speed against the user's own."""

    batch_size: int
    """Recommended micro-batch of one device."""
    accumulate: int
    world: int
    effective: int
    """Samples an optimizer step sees on all devices together."""
    max_batch: int
    refuted_at: int | None
    bound: str
    """What keeps the batch from being larger, in words."""
    settings: str
    """What is not as the user has it, in words."""
    changes: dict[str, str]
    samples_per_second: float | None
    own_samples_per_second: float | None
    """None where the user's own settings were never timed."""
    own_batch: int | None
    speedup: float | None
    peak_bytes: int | None
    """Device-wide, at ``batch_size``."""
    budget_bytes: int
    ranks: int = 1
    """Processes that trained together in each probe. Speeds are those of one of them, in which the slowest decides; memory is
    that of the one that holds the most, and the budget that of each."""
    all_ranks_samples_per_second: float | None = None
    """Of all of them together; None where one process trains, or nothing was timed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Memory of one kind."""

    kind: str
    size_bytes: int | None
    """None = not reached."""
    expected: bool = False
    """Computed from the number of parameters, not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoAnswer:
    """Why there is no batch to train with."""

    title: str
    message: str
    detail: str
    """The user's own traceback, or the end of their stderr; empty where it says nothing more."""
    next_action: str
    parts: tuple[Part, ...] = ()
    """Where the memory went, at ``at_batch``; empty where memory is not to blame."""
    at_batch: int | None = None
    requested_bytes: int | None = None
    """The allocation that failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One reason to believe the answer, or to doubt it."""

    text: str
    holds: bool
    """False: a doubt, or something that was not shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trade:
    """Memory against throughput, at one size under one set of settings."""

    settings: str
    role: Role
    batch_size: int
    peak_bytes: int
    """Device-wide."""
    samples_per_second: float
    on_front: bool
    """Nothing else that trains the same is faster with as little memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeMark:
    """One batch size that ran, with the settings of ``MemoryBySize``."""

    batch_size: int
    verdict: Verdict
    peak_bytes: int | None
    """Device-wide; of a size that failed, what it had reached by then."""
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeParts:
    """The memory of one batch size, by kind."""

    batch_size: int
    by_kind: tuple[int, ...]
    """Bytes, in the order of ``MemoryBySize.kinds``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBySize:
    """Memory by kind over the batch size, for one set of settings."""

    settings: str
    foretold: bool
    """From the allocator's record of small sizes; False = as the probe of each size measured it."""
    kinds: tuple[str, ...]
    parts: tuple[SizeParts, ...]
    """Sizes ascending."""
    marks: tuple[SizeMark, ...]
    """Sizes ascending."""
    left_out: int
    """Sizes that ran and are not shown, there being too many."""
    budget_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PhasePeak:
    """Peak of one phase."""

    phase: Phase
    allocated_bytes: int
    reserved_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryInStep:
    """Memory over one training step."""

    timeline: StepTimeline | None
    """None where the allocator's history was not recorded."""
    settings: str
    """Of the timeline."""
    foretold: bool
    """The timeline is foretold for its size, from a recording of smaller ones."""
    phases: tuple[PhasePeak, ...]
    """As the probe of ``phases_batch`` measured them."""
    phases_batch: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """Times of the steps of one probe, warm-up left out."""

    settings: str
    role: Role
    batch_size: int
    samples: int
    """In one step: batch times accumulation."""
    seconds: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """One set of settings that was tried."""

    settings: str
    role: Role
    batch_size: int
    samples_per_second: float | None
    gain: float | None
    """Times as fast as the user's own."""
    peak_bytes: int | None
    verdict: str
    """What became of it, and why it lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One process that was run."""

    number: int
    """From 1, oldest first."""
    batch_size: int
    form: str
    reason: str
    settings: str
    peak_bytes: int | None
    samples_per_second: float | None
    seconds: float
    fits: bool
    outcome: str
    evaluation: str
    """At which size it evaluated, where that is not its own; else empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureText:
    """What one kind of failure said, in the words of whoever raised it."""

    title: str
    probes: tuple[int, ...]
    """Numbers of the probes that failed like this."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """One of the processes that trained together in a probe."""

    rank: int
    peak_bytes: int | None
    """Of its device; None where it was stopped before it could tell."""
    outside_bytes: int | None
    """Of that what PyTorch's allocator does not hold: context, libraries, buffers of NCCL; None on the CPU."""
    steps: int
    what: str
    """What became of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ByRank:
    """The ranks of one probe."""

    probe: int
    """Number of the probe."""
    batch_size: int
    """Of each rank."""
    settings: str
    fits: bool
    failed_first: int | None
    """Rank whose failure is the probe's; None where all fit, or none can be named."""
    budget_bytes: int
    """Of each rank's device."""
    ranks: tuple[Rank, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """All of a report."""

    report_version: int
    search_id: str
    state: SearchState
    created: datetime
    finished: datetime | None
    version: str
    """autotune's own."""
    model: str
    device: str
    budget_bytes: int
    """What the job may use, device-wide."""
    headline: str
    answer: Answer | None
    no_answer: NoAnswer | None
    """None exactly when there is an answer."""
    claims: tuple[Claim, ...]
    mind: tuple[str, ...]
    """What to know beside the number."""
    next_steps: tuple[str, ...]
    commands: tuple[str, ...]
    """To train with the answer, or to go on."""
    trades: tuple[Trade, ...]
    """The front first, by memory; then the others by throughput."""
    memory: tuple[MemoryBySize, ...]
    """Of the answer's settings, then of the user's own where these are others; without an answer of the user's own."""
    step: MemoryInStep | None
    times: tuple[StepTimes, ...]
    tried: tuple[Tried, ...]
    """Empty for a search of the batch alone."""
    not_tried: tuple[str, ...]
    probes: tuple[Probe, ...]
    probes_left_out: int
    failures: tuple[FailureText, ...]
    failures_left_out: int
    """Kinds of failure that are not shown."""
    facts: Mapping[str, Mapping[str, str]]
    """Title -> label -> value: search, workload, machine, budget."""
    reproduce: str
    """The command that asks the same question; empty where there is none."""
    reproduce_note: str
    """What to mind with it, or why there is none."""
    own_settings: str = ""
    """What of the user's own settings is not the default, in words; empty where nothing."""
    ranks: int = 1
    """Processes that train together in each probe."""
    predicted: bool = False
    """Whether one process stood in for all of them in each probe."""
    by_rank: tuple[ByRank, ...] = ()
    """The probes that the answer rests on, rank by rank; empty where one process trains."""
