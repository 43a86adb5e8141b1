"""A whole search: what was asked, what it concluded, how the ledger keeps it."""

from dataclasses import dataclass, field
from datetime import datetime

from autotune.model.machine import Budget, Machine
from autotune.model.probe import ProbeResult
from autotune.model.settings import Settings
from autotune.model.summary import SearchState
from autotune.model.words import Form, Objective, Phase
from autotune.model.workload import Source, WorkloadInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Values one knob may take in a search, as ``autotune.knobs`` writes them."""

    knob: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything a search was asked for."""

    source: Source
    settings: Settings = field(default_factory=Settings)
    other_allocators: tuple[str, ...] = ()
    """Allocator configurations to try as well, where more is expected of them than of the one in ``settings``."""
    device: str = "auto"
    memory_limit_bytes: int | None = None
    multiple_of: int = 1
    start_batch: int | None = None
    """First size to try; None = the smallest."""
    max_batch: int | None = None
    timeout_s: float = 300.0
    """Wall limit of one probe."""
    time_budget_s: float | None = None
    """Wall limit of the whole search; None = none."""
    device_wait_s: float = 600.0
    """How long other searches' probes on the device are waited for, each time; twice the default limit of one probe."""
    seed: int = 0
    recommend: bool = True
    """Also certify the smallest batch within 2 % of the best throughput."""
    space: tuple[Choice, ...] = ()
    """Settings that may be changed; empty = only the batch is searched."""
    objective: Objective = Objective.THROUGHPUT
    effective_batch: int | None = None
    """Samples an optimizer step is to see on all devices together, exactly; None = as ``settings.accumulate`` makes it."""
    world: int = 1
    """Devices that train together."""
    ranks: int = 1
    """Processes that train together in each probe, each on a device of its own; ``world`` is a multiple of it."""
    predicted: bool = False
    """One process stands in for all ranks: what it finds is a prediction of what they need, and they never ran."""
    communicators_bytes: int = 0
    """Where it is predicted: what communicators with the others are taken to hold of each device."""
    trials: int = 12
    """How many settings the sampler may propose at most, beside those that are known to pay."""
    eval_batch: int | None = None
    """Batch size that evaluation is to run at; None = that of training, as far as it fits."""
    length_bucket: int | None = None
    """Only samples at most so long are trained on; None = all of them."""

    @property
    def replicas(self) -> int:
        """Devices that train on batches of their own: all of them, but for tensor parallel."""
        return self.world // self.ranks * self.settings.parallel.replicas(self.ranks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What the memory model said, from recordings of small sizes alone, before any probe near the limit."""

    limit: int
    """The largest size it expected to be safe."""
    recorded_up_to: int
    """The largest size that was recorded."""
    allocated_bytes: int
    """Peak it expected at the size that is the answer."""
    reserved_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """How fast batches come from the data set, against how fast they are trained on."""

    workers: int
    """Processes of the data loader."""
    pin_memory: bool
    samples_per_second: float
    """Loaded with so many workers, as fast as they come."""
    training_samples_per_second: float
    """Trained on at the recommended batch."""

    @property
    def data_bound(self) -> bool:
        """Whether training would wait for data."""
        return self.samples_per_second < self.training_samples_per_second


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Which batches the workload's evaluation takes, told apart from those of training."""

    max_batch: int | None
    """Largest size it ran at in the probe that certified training's ``max_batch``; None = it did not run beside it."""
    refuted_at: int | None
    """Smallest executed size above it at which the evaluation failed; None where larger ones were not tried."""
    limited_by: str
    """The cause of the refutation, ``not_searched`` or ``eval_batch`` (no larger one was asked for)."""

    @property
    def fits_nothing(self) -> bool:
        """Whether it failed at every size there is."""
        return self.max_batch is None and self.refuted_at is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the strategy concludes from a history."""

    max_batch: int
    """Largest certified batch size."""
    refuted_at: int | None
    """Smallest executed size above it that is not safe; None when a bound, not a failure, ended the search."""
    recommended_batch: int
    """Smallest certified size within 2 % of the best throughput (= max_batch when not looked for)."""
    limited_by: str
    """The cause of the refutation, or ``max_batch`` / ``data_set``."""
    step: int
    """Sizes are multiples of this: ``--multiple-of``, or what the workload was seen to demand."""
    holes: tuple[int, ...] = ()
    """Sizes below the answer that failed although larger ones ran."""
    settings: Settings | None = None
    """What it holds for; None = the plan's, as in ledgers of older versions."""
    loading: Loading | None = None
    """None where there is no data set, or loading was not measured."""
    complete: bool = True
    """False: time ran out, and this is the best that was certified by then."""
    prediction: Prediction | None = None
    """None where the allocator's history was not recorded or could not be used."""
    evaluation: Evaluation | None = None
    """None = not probed: the workload has no evaluation, or an older version answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """The strategy is done."""

    reason: str
    """Why, for the report. Never empty."""
    answer: Answer | None
    """None when nothing fits or the workload itself fails; the history then tells which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """The answer with its evidence."""

    search_id: str
    plan: Plan
    workload: WorkloadInfo
    machine: Machine
    budget: Budget
    answer: Answer
    probes: tuple[ProbeResult, ...]
    """All probes the answer rests on, oldest first, reused ones included."""
    new_probes: int
    """How many of them this call ran itself."""
    seconds: float
    created: datetime
    warnings: tuple[str, ...] = ()
    from_ledger: bool = False
    """True when an earlier answer was confirmed by one probe instead of searched again."""

    @property
    def settings(self) -> Settings:
        """What the answer holds for."""
        return self.answer.settings or self.plan.settings

    @property
    def certificate(self) -> ProbeResult:
        """The long probe that certified ``max_batch``: the one with the largest evaluation, the newest of these."""
        long = [p for p in self._relevant(self.answer.max_batch) if p.form is Form.LONG and p.fits]
        return max(reversed(long), key=lambda probe: probe.evaluated_at or 0)

    @property
    def refutation(self) -> ProbeResult | None:
        """The probe that refuted ``refuted_at``."""
        failed = [p for p in self._relevant(self.answer.refuted_at) if not p.fits and p.form is not Form.EVALUATE]
        if self.answer.evaluation is not None:  # which has a limit of its own
            failed = [p for p in failed if p.failure is None or p.failure.phase is not Phase.EVALUATE] or failed
        return failed[-1] if failed else None

    def _relevant(self, batch_size: int | None) -> list[ProbeResult]:
        return [p for p in self.probes if p.batch_size == batch_size and p.settings == self.settings]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRecord:
    """One search as the ledger keeps it."""

    id: str
    key: str
    """Hash of workload fingerprint, machine fingerprint, settings, limit and bounds: equal keys, equal question."""
    state: SearchState
    created: datetime
    finished: datetime | None = None
    owner: str
    """``host:pid:start`` of the process that runs it."""
    version: str
    """autotune's version."""
    plan: Plan
    workload: WorkloadInfo
    machine: Machine
    budget: Budget
    answer: Answer | None = None
    message: str = ""
    """Why it ended, in a sentence."""
    based_on: str | None = None
    """Id of the earlier search whose answer this one confirmed."""
    lease_until: datetime | None = None
    """While it runs: until when it counts as running where its process cannot be seen. None otherwise."""
