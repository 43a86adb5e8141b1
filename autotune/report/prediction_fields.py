"""The fields of what ``autotune predict --json`` prints. Field docs become descriptions in the schema."""

from typing import Literal

from pydantic import AwareDatetime, Field

from autotune.model import Parallel
from autotune.report.fields import Error, Machine, Workload
from autotune.report.settings_fields import Fields


class PredictedMemory(Fields):
    """What the memory of one rank consists of at the predicted batch; null where it cannot be told."""

    parameters_bytes: int | None
    buffers_bytes: int | None
    gradients_bytes: int | None
    optimizer_bytes: int | None
    batch_bytes: int | None
    activations_bytes: int | None
    """The rest of the allocator's peak: activations, gathered parameters, buckets, temporaries."""
    non_pytorch_bytes: int | None
    """Context and libraries, and what communicators are taken to hold."""


class RealRanks(Fields):
    """What the ranks said when they ran."""

    max_batch: int | None
    """Largest certified size; null where nothing fitted."""
    refuted_at: int | None
    limited_by: str | None
    peak_bytes: int | None
    search_id: str | None
    error: Error | None
    """Why there is no answer."""


class PredictedWay(Fields):
    """One way in which ranks may train together."""

    parallel: Parallel
    status: str
    """"predicted, not run", or "verified on N ranks"."""
    max_batch: int | None
    """Largest size of one rank at which the process that stands in for all trained safely; null where there is none."""
    refuted_at: int | None
    limited_by: str | None
    effective: int | None
    """Samples a step sees on all ranks together."""
    peak_bytes: int | None
    """Of a rank's device, communicators included."""
    memory: PredictedMemory | None
    search_id: str | None
    """Of the process that stood in, in autotune's ledger."""
    error: Error | None
    """Why there is no answer."""
    enough_ranks: int | None
    """Where nothing fits: a number of ranks predicted to hold the smallest batch; null where none was found."""
    real: RealRanks | None
    """Null where the ranks did not run."""


class PredictionDocument(Fields):
    """What autotune predict --json prints. It recommends nothing: autotune.load, check and export refuse it."""

    schema_version: Literal[1]
    kind: Literal["prediction"]
    created: AwareDatetime
    workload: Workload
    machine: Machine
    """The one device that stood in for all."""
    ranks: int = Field(ge=2)
    accumulate: int = Field(ge=1)
    budget_bytes: int
    """What each rank may use."""
    communicators_bytes: int
    """What communicators between the ranks are taken to hold of each device."""
    communicators_told_by: str
    ways: tuple[PredictedWay, ...]
    warnings: tuple[str, ...]
