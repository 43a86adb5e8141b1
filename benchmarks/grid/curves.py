"""What a recorded grid says about settings at any size: rows as they are, lines between them, relatives beyond. Pure.

- A recorded size is what its row says.
- Between two recorded sizes that fit, and beyond them, step time and memory are on the line through the two nearest.
- Where one size was recorded, time and memory go over sizes as those of the nearest settings with several do.
- From the smallest size on that failed, everything larger fails as it did. Settings that fit at no recorded size are, at
  smaller ones, as the nearest settings that fit; those that failed for another reason than memory fail everywhere.
- Settings that were not recorded are taken for the nearest: those that differ in the fewest fields by their weights; among
  several such for the first. A knob that the grid has not varied so changes nothing.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median

from autotune.model import Compile, Form, OptimizerKind, Settings
from benchmarks.grid.recording import Recording, Row

_TIMED_STEPS = Form.TIMED.steps - 1
"""Steps of a recorded probe beside its first."""
_WEIGHTS = {"compile": 8, "precision": 4, "checkpointing": 4, "memory_format": 2}
"""How far settings are apart that differ in one of these fields; any other counts 1. Rather by what each usually changes
than by anything measured: an optimizer's implementation hardly matters, compiling does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Settings at one size."""

    step_s: float
    """Median of a step."""
    allocated_bytes: float
    reserved_bytes: float
    first_step_s: float
    other_s: float
    """Of the probe, beside its steps."""
    spread: tuple[float, ...]
    """Recorded step times by their median."""


class Curves:
    """All settings of a recording.

    Raises:
        ValueError: nothing in it fits, so that there is nothing to tell from.
    """

    def __init__(self, recording: Recording) -> None:
        self._cap_bytes = recording.cap_bytes if recording.device != "cpu" else None
        self._rows: dict[Settings, list[Row]] = defaultdict(list)
        for row in recording.rows:
            if row.form is Form.TIMED:
                self._rows[row.chosen].append(row)
        if not self._points:
            raise ValueError(f"no row of {recording.workload} fits")

    def nearest(self, settings: Settings) -> Settings:
        """The recorded settings that stand for these."""
        return _nearest(settings, self._rows)

    def failure(self, settings: Settings, size: int) -> Row | None:
        """The row whose failure a probe of recorded settings repeats at this size; None where none does."""
        rows = self._rows[settings]
        fit = any(row.fits for row in rows)
        failed = [row for row in rows if not row.fits]
        return min(
            (row for row in failed if row.batch <= size or not (fit or row.outcome.is_ceiling)),
            key=lambda row: row.batch,
            default=None,
        )

    def fits(self, settings: Settings, size: int) -> bool:
        """Whether recorded settings fit at this size, larger ones than were recorded by the line of their memory."""
        if self.failure(settings, size) is not None:
            return False
        return self._cap_bytes is None or self.at(settings, size).allocated_bytes <= self._cap_bytes

    def largest(self, settings: Settings) -> int | None:
        """The largest recorded size that fits; None where none does."""
        return max(self._points.get(settings, ()), default=None)

    def at(self, settings: Settings, size: int) -> Point:
        """Recorded settings at this size, whether they fit there or not."""
        known = self._points.get(settings)
        if known is None:
            return self.at(_nearest(settings, self._points), size)
        if size in known or len(known) > 1:
            return _between(known, size)
        (own,) = known
        several = [other for other, points in self._points.items() if len(points) > 1]
        if not several:
            return _scaled(known[own], size / own, size / own)
        like = self._points[_nearest(settings, several)]
        here, there = _between(like, own), _between(like, size)
        return _scaled(known[own], there.step_s / here.step_s, there.allocated_bytes / here.allocated_bytes)

    def first_step_s(self, settings: Settings, size: int, *, again: bool) -> float:
        """Of recorded settings. What compiles is compiled anew unless ``again``; then, as for all that differ in the
        optimizer's implementation alone, kernels are in the cache: the shortest first step recorded at that size."""
        family = [points for other, points in self._points.items() if family_of(other) == family_of(settings)]
        if settings.compile is Compile.OFF or not family:
            return self.at(settings, size).first_step_s
        recorded = {n for points in family for n in points}
        nearest = min(recorded, key=lambda n: (abs(n - size), n))
        times = [points[nearest].first_step_s for points in family if nearest in points]
        return min(times) if again else max(times)

    @cached_property
    def _points(self) -> dict[Settings, dict[int, Point]]:
        return {
            settings: {row.batch: _point(row) for row in rows if row.fits}
            for settings, rows in self._rows.items()
            if any(row.fits for row in rows)
        }


def family_of(settings: Settings) -> Settings:
    """What is the same for the compiler."""
    return replace(settings, optimizer=OptimizerKind.DEFAULT)


def _nearest(settings: Settings, known: Iterable[Settings]) -> Settings:
    return min(known, key=lambda one: sum(_WEIGHTS.get(name, 1) for name in one.changes(settings)))


def _point(row: Row) -> Point:
    step = median(row.step_seconds)
    first = row.first_step_seconds or step
    held = row.allocated_bytes or 0
    return Point(
        step_s=step,
        allocated_bytes=held,
        reserved_bytes=row.reserved_bytes or held,
        first_step_s=first,
        other_s=max(0.0, row.seconds - first - _TIMED_STEPS * step),
        spread=tuple(seconds / step for seconds in row.step_seconds),
    )


def _between(points: dict[int, Point], size: int) -> Point:
    """On the line through the two nearest; what else a probe takes as at the nearest."""
    if size in points:
        return points[size]
    first, second = _two_nearest(list(points), size)
    nearest = points[first]
    low, high = sorted((first, second))
    share = (size - low) / (high - low)
    one, other = points[low], points[high]
    # a smaller batch is not faster by the sample: a line through noise could say so
    least = one.step_s * min(1.0, size / low)
    return replace(
        nearest,
        step_s=max(one.step_s + share * (other.step_s - one.step_s), least),
        allocated_bytes=max(0.0, one.allocated_bytes + share * (other.allocated_bytes - one.allocated_bytes)),
        reserved_bytes=max(0.0, one.reserved_bytes + share * (other.reserved_bytes - one.reserved_bytes)),
    )


def _two_nearest(sizes: Sequence[int], size: int) -> tuple[int, int]:
    """Those on both sides where there are such, the nearer one first."""
    below = [n for n in sizes if n < size]
    above = [n for n in sizes if n > size]
    ranked = sorted(sizes, key=lambda n: (abs(n - size), n))
    pair = (max(below), min(above)) if below and above else (ranked[0], ranked[1])
    first, second = sorted(pair, key=lambda n: (abs(n - size), n))
    return first, second


def _scaled(point: Point, time: float, memory: float) -> Point:
    return replace(
        point,
        step_s=point.step_s * time,
        allocated_bytes=point.allocated_bytes * memory,
        reserved_bytes=point.reserved_bytes * memory,
    )
