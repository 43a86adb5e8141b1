"""The document of an exhaustive grid: one row a probe. What CI replays the search on."""

import json
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, TypeAdapter, field_validator, model_validator

from autotune.errors import UsageError
from autotune.model import Cause, Composition, Form, Outcome, ProbeResult, Settings, Traits
from benchmarks.common.documents import BadResults, Part, Run

_NAMES = frozenset(field.name for field in fields(Settings))
_MESSAGE = 300  # characters of a failure


class Row(Part):
    """One probe."""

    form: Form
    """``timed``, or ``compare`` with the user's own settings."""
    settings: dict[str, Any]
    """Fields that differ from their defaults."""
    batch: int = Field(ge=1)
    outcome: Outcome
    cause: Cause | None = None
    """Of a failure."""
    message: str = ""
    samples_per_second: float | None = None
    step_seconds: tuple[float, ...] = ()
    """Without the first two steps."""
    first_step_seconds: float | None = None
    """Compiling included."""
    allocated_bytes: int | None = None
    """Peak, as the two below; reserved and non-PyTorch memory are None on the CPU."""
    reserved_bytes: int | None = None
    device_bytes: int | None = None
    """Reserved and non-PyTorch memory together."""
    non_pytorch_bytes: int | None = None
    composition: Composition = Field(default_factory=Composition)
    retries: tuple[int, ...] = ()
    """Of the allocator, in each step."""
    graph_breaks: int | None = None
    recompiles: int | None = None
    seconds: float = Field(gt=0)
    """Of the whole probe."""

    @field_validator("settings")
    @classmethod
    def _are_settings(cls, value: dict[str, Any]) -> dict[str, Any]:
        _settings(value)
        return value

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if (self.outcome is Outcome.FITS) != (self.cause is None):
            raise ValueError(f"outcome {self.outcome} with cause {self.cause}")
        timed = self.samples_per_second is not None and bool(self.step_seconds) and self.first_step_seconds is not None
        if self.form is Form.TIMED and self.fits and not timed:
            raise ValueError("a timed probe that fits has step times")
        return self

    @property
    def fits(self) -> bool:
        """Whether it ran to its end and was safe, or trained the same."""
        return self.outcome is Outcome.FITS

    @property
    def chosen(self) -> Settings:
        """All of the settings."""
        return _settings(self.settings)


class Recording(Part):
    """All probes of one workload on one machine."""

    what = "recorded grid"
    kind: Literal["settings-grid"] = "settings-grid"
    workload: str
    parameters: int
    """How many the model has."""
    traits: Traits
    """What decides which settings make sense."""
    device: str
    """Kind of device."""
    device_name: str
    cap_bytes: int
    """Of PyTorch's allocator; without meaning on the CPU."""
    runs: tuple[Run, ...] = ()
    rows: tuple[Row, ...] = ()

    def with_run(self, run: Run) -> "Recording":
        """One more call of the command."""
        return self.model_copy(update={"runs": (*self.runs, run)})

    def with_row(self, row: Row) -> "Recording":
        """One more probe."""
        return self.model_copy(update={"rows": (*self.rows, row)})

    @property
    def cost_s(self) -> float:
        """Seconds that all timed probes took; comparisons are not counted."""
        return sum(row.seconds for row in self.rows if row.form is Form.TIMED)

    @property
    def best(self) -> Row | None:
        """The fastest row of settings that are not known to train something else; None where nothing fits."""
        return next(iter(by_speed(self.rows)), None)


def by_speed(rows: Sequence[Row]) -> list[Row]:
    """Timed rows that fit, the fastest first, without those of settings that were seen to train something else."""
    rejected = [row.settings for row in rows if row.form is Form.COMPARE and not (row.fits or row.outcome.is_ceiling)]
    timed = [row for row in rows if row.form is Form.TIMED and row.fits and row.settings not in rejected]
    return sorted(timed, key=lambda row: -(row.samples_per_second or 0.0))


def to_row(probe: ProbeResult) -> Row:
    """What is kept of a probe."""
    measured, failure = probe.measurement, probe.failure
    return Row(
        form=probe.form,
        settings=json.loads(json.dumps(probe.settings.changes(Settings()))),
        batch=probe.batch_size,
        outcome=probe.outcome,
        cause=failure.cause if failure else None,
        message=failure.message[:_MESSAGE] if failure else "",
        samples_per_second=probe.samples_per_second,
        step_seconds=tuple(round(seconds, 6) for seconds in measured.step_seconds),
        first_step_seconds=measured.first_step_seconds,
        allocated_bytes=measured.peak_allocated_bytes,
        reserved_bytes=measured.peak_reserved_bytes,
        device_bytes=measured.peak_device_bytes,
        non_pytorch_bytes=measured.non_pytorch_bytes,
        composition=measured.composition,
        retries=measured.retries_per_step,
        graph_breaks=measured.graph_breaks,
        recompiles=measured.recompiles,
        seconds=round(probe.seconds, 3),
    )


def check_same(known: Recording, fresh: Recording, path: Path) -> None:
    """See that what is about to be measured belongs in the same file.

    Raises:
        BadResults: another workload, model or cap was recorded there.
    """
    for what in ("workload", "parameters", "device_name", "cap_bytes"):
        one, two = getattr(known, what), getattr(fresh, what)
        if one != two:
            raise BadResults(
                f"{path} was recorded under other conditions: {what} is {one} there and {two} here; give another --out"
            )


def _settings(changes: dict[str, Any]) -> Settings:
    unknown = sorted(changes.keys() - _NAMES)
    if unknown:
        raise ValueError(f"there is no setting {', '.join(unknown)}")
    try:
        return _ADAPTER.validate_json(json.dumps(changes), strict=True)
    except UsageError as error:
        raise ValueError(error.message) from error


_ADAPTER = TypeAdapter(Settings)
