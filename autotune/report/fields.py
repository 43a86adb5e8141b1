"""The fields of ``autotune.json`` and of what ``--json`` prints. Field docs become descriptions in the schema.

History of the format: version 1, the first. Added to it since, and left out by older files: ``evidence.prediction``.
"""

from typing import Literal, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, model_validator

from autotune.model import Precision


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)


class Workload(_Part):
    """What is trained."""

    ref: str
    """How autotune was told to load it."""
    fingerprint: str | None
    """Hash of its code; null when it could not be loaded."""
    parameters: int | None
    """Number of parameters; null when it could not be loaded."""


class Machine(_Part):
    """Where the numbers were measured; they hold nowhere else."""

    device: str
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


class Settings(_Part):
    """How it is trained, as far as autotune applied it."""

    precision: Precision
    allocator: str
    """Allocator configuration in PyTorch's syntax; empty = the default."""


class Batch(_Part):
    """The answer."""

    micro_batch: int = Field(ge=1)
    """Recommended size of one batch on the device; certified."""
    accumulate: int = Field(ge=1)
    """Micro-batches per optimizer step."""
    effective: int = Field(ge=1)
    """Samples per optimizer step: micro_batch times accumulate."""
    max_batch: int = Field(ge=1)
    """Largest certified size."""
    refuted_at: int | None
    """Smallest executed size above it that is not safe; null when a bound ended the search."""

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.effective != self.micro_batch * self.accumulate:
            raise ValueError(f"effective is {self.effective}, micro_batch times accumulate is not")
        if self.micro_batch > self.max_batch:
            raise ValueError(f"micro_batch {self.micro_batch} is above max_batch {self.max_batch}")
        if self.refuted_at is not None and self.refuted_at <= self.max_batch:
            raise ValueError(f"refuted_at {self.refuted_at} is not above max_batch {self.max_batch}")
        return self


class NoBatch(_Part):
    """No answer."""

    micro_batch: None
    accumulate: int | None
    effective: None
    max_batch: None
    refuted_at: None


class Prediction(_Part):
    """What the memory model foretold from recordings of small sizes alone, to compare with what was measured."""

    limit: int
    """Largest size it expected to be safe."""
    recorded_up_to: int
    """Largest size that was recorded."""
    allocated_bytes: int
    """Peak it expected the allocator to hand out at max_batch."""
    reserved_bytes: int
    """Peak it expected the allocator to hold at max_batch."""


class Evidence(_Part):
    """What the probe that certified micro_batch saw, and what the search cost."""

    samples_per_second: float | None
    """Throughput at micro_batch; null where nothing could be timed."""
    baseline_samples_per_second: float | None
    """Throughput of the user's own settings; the same number, since the settings are the user's own."""
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
    prediction: Prediction | None = None
    """Null where nothing was recorded, or the recording could not be used."""


class Error(_Part):
    """Why there is no answer."""

    kind: str
    message: str
    hint: str


class Document(_Part):
    """A recommendation: the content of autotune.json."""

    schema_version: Literal[1]
    created: AwareDatetime
    complete: bool
    """True: only a search that ran to its end gives an answer."""
    workload: Workload
    machine: Machine
    settings: Settings
    batch: Batch
    environment: dict[str, str]
    """Variables to set for the training."""
    evidence: Evidence
    search_id: str
    """The search in autotune's ledger."""
    limited_by: str
    """What keeps the batch from being larger."""
    warnings: tuple[str, ...]


class FailureDocument(_Part):
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
    environment: dict[str, str]
    evidence: None
    search_id: None
    limited_by: None
    warnings: tuple[str, ...]
    error: Error
