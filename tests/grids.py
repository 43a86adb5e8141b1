"""Recorded grids of settings and batches: see ``tests/assets/grids/README.md``.

Between recorded sizes a step's time and memory are lines in the batch. Settings that were not recorded are taken from the
recorded ones that differ from them the least, changed by what each differing knob is worth on average over all recorded pairs
that differ in it alone. Settings recorded at one size behave over sizes like their nearest relative with several.
"""

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from math import exp, log
from pathlib import Path
from statistics import mean, median
from typing import Any

ASSETS = Path(__file__).parent / "assets" / "grids"
KNOBS = ("precision", "compile", "optimizer", "checkpointing", "channels_last")
Key = tuple[object, ...]
"""Values of ``KNOBS``."""
RecordedRow = dict[str, Any]
"""As the JSON has it."""
_RECORDED_STEPS = 9


@dataclass(frozen=True, slots=True)
class Point:
    """One set of settings at one size."""

    step_s: float
    reserved_bytes: float
    first_step_s: float
    other_s: float
    """Of the probe, beside its steps."""
    spread: tuple[float, ...] = (1.0,)
    """Recorded step times by their median."""


@cache
def load(name: str = "h200.json") -> tuple[RecordedRow, ...]:
    """The rows of a grid."""
    return tuple(json.loads((ASSETS / name).read_text()))


@dataclass
class Grid:
    """What was recorded of one workload."""

    workload: str
    rows: Sequence[RecordedRow] = field(default_factory=load)
    """Of all workloads."""
    _known_worth: dict[tuple[int, object, object], tuple[float, float]] = field(default_factory=dict)

    @cached_property
    def recorded(self) -> list[RecordedRow]:
        """Rows of the workload."""
        return [row for row in self.rows if row["workload"] == self.workload]

    @cached_property
    def sizes(self) -> list[int]:
        """Recorded sizes, ascending."""
        return sorted({row["batch_size"] for row in self.recorded})

    @cached_property
    def whole_cost_s(self) -> float:
        """Of probing the whole grid."""
        return sum(float(row["probe_s"]) for row in self.recorded)

    @property
    def best_recorded(self) -> float:
        """The highest throughput in the grid."""
        return max(float(row["batch_size"] / median(row["step_s"])) for row in self.recorded if row["fits"])

    @property
    def failed_s(self) -> float | None:
        """Mean cost of a probe that ran out of memory; None where none did."""
        failed = [float(row["probe_s"]) for row in self.recorded if not row["fits"]]
        return mean(failed) if failed else None

    @property
    def cached_compile_s(self) -> float:
        """First step of the cheapest compile: it found its kernels in the compiler's cache."""
        return min(float(row["first_step_s"]) for row in self.recorded if row["fits"] and row["compile"])

    def varies(self, knob: str) -> bool:
        """Whether the grid has several values of the knob."""
        return len({row[knob] for row in self.recorded}) > 1

    def at(self, key: Key, size: int) -> Point:
        """These settings at this size, recorded or worked out."""
        known = self._points.get(key)
        if known is not None and (size in known or len(known) > 1):
            return _between(known, size)
        if known is not None:
            (own,) = known
            like = self._points[min((k for k, of in self._points.items() if len(of) > 1), key=self._far_from(key))]
            return _scaled(known[own], _between(like, own), _between(like, size))
        nearest = min(self._points, key=self._far_from(key))
        point = self.at(nearest, size)
        for index, (before, after) in enumerate(zip(nearest, key, strict=True)):
            if before != after:
                time, memory = self._worth(index, before, after)
                point = replace(
                    point, step_s=point.step_s * exp(time), reserved_bytes=point.reserved_bytes * exp(memory)
                )
        return point

    @cached_property
    def _points(self) -> dict[Key, dict[int, Point]]:
        points: dict[Key, dict[int, Point]] = defaultdict(dict)
        for row in self.recorded:
            if row["fits"]:
                step = median(row["step_s"])
                points[tuple(row[name] for name in KNOBS)][row["batch_size"]] = Point(
                    step_s=step,
                    reserved_bytes=row["reserved_peak_bytes"],
                    first_step_s=row["first_step_s"],
                    other_s=max(0.0, row["probe_s"] - row["first_step_s"] - (_RECORDED_STEPS - 1) * step),
                    spread=tuple(seconds / step for seconds in row["step_s"]),
                )
        return dict(points)

    def _far_from(self, key: Key) -> Any:
        """Distance of other settings: what the knobs that differ are worth together."""

        def distance(other: Key) -> float:
            pairs = enumerate(zip(key, other, strict=True))
            return sum(0.001 + abs(self._worth(index, a, b)[0]) for index, (a, b) in pairs if a != b)

        return distance

    def _worth(self, index: int, before: object, after: object) -> tuple[float, float]:
        """Mean logarithm of what the change does to a step's time and memory, over pairs that differ in nothing else."""
        if (index, before, after) not in self._known_worth:
            ratios = [
                (log(new.step_s / old.step_s), log(new.reserved_bytes / old.reserved_bytes))
                for key, points in self._points.items()
                if key[index] == before
                for size, old in points.items()
                if (new := self._points.get((*key[:index], after, *key[index + 1 :]), {}).get(size)) is not None
            ] or [(0.0, 0.0)]
            self._known_worth[index, before, after] = mean(t for t, _ in ratios), mean(m for _, m in ratios)
        return self._known_worth[index, before, after]


def _between(points: dict[int, Point], size: int) -> Point:
    """On the line through the two nearest recorded sizes; beyond them only step and memory go on, what is paid once stays."""
    if size in points:
        return points[size]
    low, high = sorted(sorted(points, key=lambda known: (abs(known - size), known))[:2])
    one, other = points[low], points[high]
    share = (size - low) / (high - low)
    within = min(1.0, max(0.0, share))
    return replace(
        one if within < 0.5 else other,
        step_s=max(one.step_s + share * (other.step_s - one.step_s), one.step_s * size / low / 2),
        reserved_bytes=one.reserved_bytes + share * (other.reserved_bytes - one.reserved_bytes),
        first_step_s=one.first_step_s + within * (other.first_step_s - one.first_step_s),
        other_s=one.other_s + within * (other.other_s - one.other_s),
    )


def _scaled(own: Point, like_own: Point, like_size: Point) -> Point:
    """A point moved to another size as a relative of it moves."""
    return replace(
        own,
        step_s=own.step_s * like_size.step_s / like_own.step_s,
        reserved_bytes=own.reserved_bytes * like_size.reserved_bytes / like_own.reserved_bytes,
    )
