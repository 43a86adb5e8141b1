"""How a probe process ended: the guardian's report, and in it what the process said. Untrusted: validated, never evaluated."""

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import PositiveInt, TypeAdapter, ValidationError, WrapValidator

from autotune.errors import EnvironmentTrouble
from autotune.model import Measurement, Phase
from autotune.probe.evidence import Raised
from autotune.units import LARGEST

_TAIL_BYTES = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Where a process said it was."""

    phase: Phase
    step: int | None = None
    batch_size: PositiveInt | None = None
    arrived: bool = False
    """Where it waits for other ranks: in the forward pass of a model that all of them train."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """See ``meter.MemoryState``."""

    allocated_bytes: int | None
    reserved_bytes: int | None
    free_bytes: int | None
    cap_bytes: int | None
    outside_at_cap_bytes: int | None = None
    outside_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A process's last message."""

    kind: str
    measurement: Measurement | None = None
    raised: tuple[Raised, ...] = ()
    phase: Phase | None = None
    step: int | None = None
    batch_size: PositiveInt | None = None
    """Size of the pass that ran last."""
    traceback: str = ""
    memory: Memory | None = None
    refused: dict[str, str] | None = None
    described: dict[str, dict[str, Any]] | None = None
    """Fields of what the process was to describe, not yet validated."""
    examined: dict[str, Any] | None = None
    """Of ``examine``: fields of the section's noun, not yet validated."""
    fork_safe: bool | None = None
    why: str = ""
    failed_at: float | None = None
    """Instant on ``time.monotonic`` at which it was raised."""
    ending: bool = False
    """Sent by a command of the user's that ends by itself, not by us: its exit code belongs to the answer."""


def _ours(value: object, validate: Callable[[object], Any]) -> Any:
    """The message, or None if it is none of ours: the user's code forged or broke it, which is as good as no message."""
    try:
        found = validate(value)
    except ValidationError:
        return None
    if found is None or not is_possible(asdict(found)):
        return None
    return found if isinstance(found, Mark) or _is_timed(found.measurement) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The guardian's report of one process."""

    zygote: bool
    """Whether there is a zygote to fork from now."""
    answer: Annotated[Answer | None, WrapValidator(_ours)]
    mark: Annotated[Mark | None, WrapValidator(_ours)]
    """The last."""
    exit_code: int | None
    signal: int | None
    timed_out: bool
    garbage_bytes: int
    host_oom_kills: int
    seconds: float
    stopped: bool = False
    """Ended because another rank of its probe had failed."""
    ended_at: float | None = None
    """Instant on ``time.monotonic`` at which it had answered, or was seen to have ended without."""
    peers: "tuple[Ended, ...]" = ()
    """The other ranks, where several trained together."""

    @property
    def place(self) -> tuple[Phase | None, int | None, bool]:
        """Phase and step in which it last said it was, or in which it failed; and whether it had come to where it waits for
        other ranks."""
        if self.answer is not None and self.answer.phase is not None:
            return self.answer.phase, self.answer.step, False
        return (self.mark.phase, self.mark.step, self.mark.arrived) if self.mark else (None, None, False)

    @property
    def raised_at(self) -> float | None:
        """Instant on ``time.monotonic`` at which it says that something was raised; None where nothing was, or it says one
        that cannot be."""
        said = self.answer.failed_at if self.answer else None
        if said is None or self.ended_at is None:
            return None
        return said if 0 <= said <= self.ended_at else self.ended_at


@cache
def adapter(kind: type) -> TypeAdapter[Any]:
    """What validates values of this type."""
    return TypeAdapter(kind)


def read_ended(line: bytes) -> Ended:
    """Decode the guardian's report.

    Raises:
        EnvironmentTrouble: it is none.
    """
    try:
        # Not validate_json: it refuses what may stand in texts of the user's, and numbers that are none.
        ended: Ended = adapter(Ended).validate_python(json.loads(line))
    except ValueError as error:  # what pydantic raises is one as well
        raise EnvironmentTrouble(
            f"the probe guardian sent something else than a report: {error}",
            hint="please report it with this message",
        ) from error
    return ended


def is_possible(value: object) -> bool:
    """Whether all whole numbers within are such that something can be counted by them."""
    if isinstance(value, dict):
        return all(map(is_possible, value.values()))
    if isinstance(value, list | tuple):
        return all(map(is_possible, value))
    return not isinstance(value, int) or abs(value) <= LARGEST


def _is_timed(measurement: Measurement | None) -> bool:
    """Whether its times can have been measured."""
    if measurement is None:
        return True
    once = (measurement.build_seconds, measurement.loop_seconds, measurement.worker_seconds)
    times = (*measurement.step_seconds, measurement.first_step_seconds, *once)
    return all(time is None or (math.isfinite(time) and 0 <= time < LARGEST) for time in times)


def tail(path: Path) -> str:
    """The end of a log file, as text."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            return file.read().decode(errors="replace")
    except FileNotFoundError:  # the process died before it could open it
        return ""
