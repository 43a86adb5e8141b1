"""The fields of ``autotune.json`` and of what ``--json`` prints. Field docs become descriptions in the schema.

History of the format: version 1, the first. Added to it since, and left out by older files: ``evidence.prediction``;
then all of ``settings`` but ``precision`` and ``allocator``, ``batch.world``, ``changes``,
``evidence.loading_samples_per_second``, and ``complete`` may be false; then ``evaluation``; then ``evidence.worst_batch``
and ``evidence.candidates``; then ``workload.parts``, ``asked`` and ``check``; then ``buckets``; then ``machine.peers``,
``asked.ranks``, ``batch.ranks``, ``evidence.ranks`` and ``launch``; then ``settings.parallel`` and what belongs to it;
then ``batch.replicas``; then ``evidence.all_ranks_samples_per_second``.
What an older file leaves out is what autotune did when it was written.
"""

from itertools import pairwise
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, AwareDatetime, Field, model_validator

from autotune.report.settings_fields import Asked, Fields, Settings

_MOST_SAMPLES = 1 << 53
"""More than any training has, and what every reader of JSON and every database still holds exactly."""


class Workload(Fields):
    """What is trained."""

    ref: str
    """How autotune was told to load it."""
    fingerprint: str | None
    """Hash of its code; null when it could not be loaded."""
    parameters: int | None
    """Number of parameters; null when it could not be loaded."""
    command: str | None = None
    """The training command with the recommendation filled in; null for a workload file."""
    parts: dict[str, str] = Field(default={})
    """What the fingerprint is made of, each with a hash of its own: files of code, arguments, parameters, batch."""


class Machine(Fields):
    """Where the numbers were measured; they hold nowhere else."""

    device: Literal["cpu", "cuda"]
    device_name: str
    device_uuid: str
    """Empty where the device has none."""
    device_index: int
    capacity_bytes: int
    driver_version: str
    torch_version: str
    cuda_version: str
    python_version: str
    platform: str
    unified: bool = False
    """Whether the device's memory is the host's."""
    peers: tuple[str, ...] = ()
    """UUIDs of the devices of the other ranks; empty on the CPU and where one process trained."""


def _check_bounds(max_batch: int | None, refuted_at: int | None) -> None:
    if max_batch is not None and refuted_at is not None and refuted_at <= max_batch:
        raise ValueError(f"refuted_at {refuted_at} is not above max_batch {max_batch}")


class Batch(Fields):
    """The answer."""

    micro_batch: int = Field(ge=1, le=_MOST_SAMPLES)
    """Recommended size of one batch on the device; certified."""
    accumulate: int = Field(ge=1, le=_MOST_SAMPLES)
    """Micro-batches per optimizer step."""
    world: int = Field(default=1, ge=1)
    """Devices that train together."""
    replicas: int | None = Field(default=None, ge=1)
    """How many of them train on micro-batches of their own; null: all, also in files of older versions. Under tensor
    parallel one batch is that of all."""
    ranks: int = Field(default=1, ge=1)
    """How many of them trained together in the probes; where world is larger, the others were never run."""
    effective: int = Field(ge=1, le=_MOST_SAMPLES)
    """Samples per optimizer step on all devices together: micro_batch times accumulate times replicas."""
    max_batch: int = Field(ge=1, le=_MOST_SAMPLES)
    """Largest certified size."""
    refuted_at: int | None
    """Smallest executed size above it that is not safe; null when a bound ended the search."""

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        name, replicas = ("world", self.world) if self.replicas is None else ("replicas", self.replicas)
        if self.world % replicas:
            raise ValueError(f"world {self.world} is no multiple of replicas {replicas}")
        product = self.micro_batch * self.accumulate * replicas
        if self.effective != product:
            raise ValueError(f"effective is {self.effective}, micro_batch times accumulate times {name} is {product}")
        if self.world % self.ranks:
            raise ValueError(f"world {self.world} is no multiple of ranks {self.ranks}")
        if self.micro_batch > self.max_batch:
            raise ValueError(f"micro_batch {self.micro_batch} is above max_batch {self.max_batch}")
        _check_bounds(self.max_batch, self.refuted_at)
        return self


class Evaluation(Fields):
    """Batches of the workload's evaluation, which has a limit of its own."""

    max_batch: int | None = Field(ge=1)
    """Largest size it ran at beside training at batch.max_batch; null when it ran at none."""
    refuted_at: int | None
    """Smallest executed size above it at which it failed; null when larger ones were not tried."""
    limited_by: str
    """What keeps it from being larger."""
    failure: str | None
    """What happened at refuted_at: where, and in the words of whoever raised it."""

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        _check_bounds(self.max_batch, self.refuted_at)
        return self


class NoBatch(Fields):
    """No answer."""

    micro_batch: None
    accumulate: int | None
    effective: None
    max_batch: None
    refuted_at: None


class Prediction(Fields):
    """What the memory model foretold from recordings of small sizes alone, to compare with what was measured."""

    limit: int
    """Largest size it expected to be safe."""
    recorded_up_to: int
    """Largest size that was recorded."""
    allocated_bytes: int
    """Peak it expected the allocator to hand out at max_batch."""
    reserved_bytes: int
    """Peak it expected the allocator to hold at max_batch."""


class Rank(Fields):
    """One of the processes that trained together in the probe that certified micro_batch."""

    rank: int = Field(ge=0)
    peak_bytes: int | None
    """Peak of the job on this rank's device."""
    non_pytorch_bytes: int | None
    """How much of it was outside the allocator, such as buffers of NCCL; null where it cannot be told (CPU)."""
    steps: int
    """Optimizer steps it executed."""


class Evidence(Fields):
    """What the probe that certified micro_batch saw, and what the search cost."""

    samples_per_second: float | None
    """Throughput of one device (of one rank where several trained together) at micro_batch; null where nothing could be
    timed."""
    baseline_samples_per_second: float | None
    """Best throughput of the user's own settings at a size they are safe at; the same number where the settings are the
    user's own, null where those were never timed."""
    peak_bytes: int | None
    """Device-wide peak of the job at micro_batch."""
    budget_bytes: int
    """What the job may use, device-wide."""
    headroom_bytes: int
    """Left free on purpose on top of the budget."""
    steps: int
    """Optimizer steps the certifying probe executed."""
    probes: int
    """Probes the answer rests on."""
    out_of_memory_probes: int
    """Those of them that ran out of device or host memory."""
    seconds: float
    """Wall time of the search."""
    loading_samples_per_second: float | None = None
    """How fast the data loader gives batches with its settings; null where that was not measured."""
    worst_batch: str | None = None
    """The largest batch that was trained on at micro_batch, its types and shapes in words: no larger one was measured."""
    ranks: tuple[Rank, ...] = ()
    """Each rank's own figures, where several trained together; peak_bytes is the largest of them."""
    all_ranks_samples_per_second: float | None = None
    """Throughput of all these ranks together at micro_batch; null where one process trained, nothing could be timed, or the
    file is of an older version."""
    candidates: int = Field(default=1, ge=1)
    """Different batches of the data that were candidates for the worst one and were trained on."""
    prediction: Prediction | None = None
    """Null where nothing was recorded, or the recording could not be used."""


class Change(Fields):
    """One thing that is not as it was when the file was made."""

    what: str
    then: str | None
    """In the file; null where it is known that it was another, and not what."""
    here: str | None
    """Found by the check; null likewise."""
    stale: bool
    """Whether the file does not hold any more because of it; if not, it is only worth knowing."""
    meaning: str


class Check(Fields):
    """What autotune check found."""

    created: AwareDatetime
    changes: tuple[Change, ...]
    batch: int | None
    """Size that was probed; null where no probe was run."""
    outcome: str | None
    """Of the probe."""
    steps: int | None
    """Optimizer steps it executed."""
    peak_bytes: int | None
    """Device-wide peak of it."""
    budget_bytes: int | None
    """What the job may use now; null where the check ended before that was known."""
    search_id: str | None
    """Under which the ledger keeps the probe."""


class Error(Fields):
    """Why there is no answer."""

    kind: str
    message: str
    hint: str


class LengthBucket(Fields):
    """The answer for samples that are at most so long, in batches of their own."""

    max_length: int = Field(ge=1)
    """Largest length in the bucket."""
    longest: int | None
    """Length of the longest sample in it, which was measured; null when there is none."""
    samples: int | None
    """Samples seen that are in it; null when batches were cut to the length."""
    max_batch: int | None = Field(ge=1)
    """Largest certified size; null when there is none."""
    refuted_at: int | None
    """As in batch."""
    limited_by: str | None
    """What keeps the batch from being larger."""
    samples_per_second: float | None
    """Throughput of one device at max_batch."""
    peak_bytes: int | None
    """Device-wide peak of the job at max_batch."""
    search_id: str | None
    """The search in autotune's ledger."""
    error: Error | None = None
    """Why there is no answer; null also when there is no such sample."""

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.max_batch is not None and (self.longest is None or self.error is not None):
            raise ValueError(f"max_batch is {self.max_batch}, and nothing was measured")
        _check_bounds(self.max_batch, self.refuted_at)
        return self


def _ascending(buckets: tuple[LengthBucket, ...]) -> tuple[LengthBucket, ...]:
    for shorter, longer in pairwise(buckets):
        if shorter.max_length >= longer.max_length:
            raise ValueError(f"length bucket {longer.max_length} comes after {shorter.max_length}")
    return buckets


LengthBuckets = Annotated[tuple[LengthBucket, ...], AfterValidator(_ascending)]


class Document(Fields):
    """A recommendation: the content of autotune.json."""

    schema_version: Literal[1]
    created: AwareDatetime
    complete: bool
    """False: time ran out, and this is the best that was certified by then."""
    workload: Workload
    machine: Machine
    settings: Settings
    changes: dict[str, str] = Field(default={})
    """What of the user's own settings is changed: field of settings (or accumulate) to its new value, as
    on the command line."""
    batch: Batch
    evaluation: Evaluation | None = None
    """Null: evaluation was not probed, because the workload has none."""
    environment: dict[str, str]
    """Variables to set for the training, before it touches the device."""
    launch: str = ""
    """How to start the training where several ranks train; empty where one process does."""
    evidence: Evidence
    search_id: str
    """The search in autotune's ledger."""
    limited_by: str
    """What keeps the batch from being larger."""
    warnings: tuple[str, ...]
    asked: Asked | None = None
    """Null in files of older versions."""
    check: Check | None = None
    """Null but for what autotune check --json prints."""
    buckets: LengthBuckets = ()
    """Answers for each length bucket, shortest first; all else is then of the longest that has samples. Empty where lengths
    were not told apart."""


class FailureDocument(Fields):
    """What --json prints when there is no answer; never written to a file."""

    schema_version: Literal[1]
    created: AwareDatetime
    complete: Literal[False]
    workload: Workload
    machine: Machine | None
    """Null when the search ended before the device was looked at."""
    settings: Settings | None
    """Null when the settings asked for make no sense."""
    batch: NoBatch
    evaluation: None = None
    environment: dict[str, str]
    evidence: None
    search_id: None
    limited_by: None
    warnings: tuple[str, ...]
    buckets: LengthBuckets = ()
    """Of each length bucket, where one of them has no answer."""
    error: Error
    check: Check | None = None
    """Null but for what autotune check --json prints."""
