"""Recorded grids of settings and batches as a machine to search on: see ``tests/assets/grids/README.md``.

Between recorded sizes a step's time and memory are lines in the batch. Settings that were not recorded are taken from the
recorded ones that differ from them the least, changed by what each differing knob is worth on average over all recorded pairs
that differ in it alone; so are sizes outside the recorded ones. What is interpolated is the machine's truth: regret is against
the best of it.
"""

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from math import exp, log
from pathlib import Path
from random import Random
from statistics import mean, median
from typing import Any

from autotune.knobs import Space, choices, make_space
from autotune.model import (
    Budget,
    Checkpointing,
    Comparison,
    Compile,
    Composition,
    Form,
    MemoryFormat,
    OptimizerKind,
    Phase,
    PhaseMemory,
    Precision,
    ProbeResult,
    Question,
    Settings,
    Traits,
)
from autotune.search.settings.rows import plain
from autotune.units import GIB
from tests.fakes import BUDGET, OUT_OF_MEMORY, result

ASSETS = Path(__file__).parent / "assets" / "grids"
CAP_BYTES = 40 * GIB
OWN_PRECISION = {"gpt2": "fp32", "resnet50": "tf32"}
"""What PyTorch does without being told: matrix products in strict fp32, convolutions in tf32."""
PARAMETERS = {"gpt2": 124_439_808, "resnet50": 25_557_032}
_KEY = ("precision", "compile", "optimizer", "checkpointing", "channels_last")
Key = tuple[object, ...]
"""Values of ``_KEY``."""


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
def load(name: str = "h200.json") -> tuple[dict[str, Any], ...]:
    """The rows of a grid."""
    return tuple(json.loads((ASSETS / name).read_text()))


@dataclass
class RecordedMachine:
    """A prober that answers from a grid."""

    workload: str
    seed: int = 0
    """Of the order in which recorded step times come."""
    rows: Sequence[dict[str, Any]] = field(default_factory=load)
    asked: list[Question] = field(default_factory=list)
    """Everything asked so far, oldest first."""

    @property
    def budget(self) -> Budget:
        """For ``drive``."""
        return replace(BUDGET, limit_bytes=CAP_BYTES)

    @cached_property
    def recorded(self) -> list[dict[str, Any]]:
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

    @cached_property
    def space(self) -> Space:
        """The combinations the grid is about."""
        traits = Traits(
            own_checkpointing="transformers" if self._varies("checkpointing") else "",
            blocks="Block" if self._varies("checkpointing") else "",
            convolutions=self._varies("channels_last"),
            optimizer_kinds=("for-loop", "foreach", "fused"),
        )
        base = Settings()
        allow = ["precision=bf16,fp16,tf32,fp32", "compile=default", "optimizer=fused"]
        allow += ["checkpointing=own"] if self._varies("checkpointing") else []
        allow += ["memory_format=channels_last"] if self._varies("channels_last") else []
        return make_space(base, choices((), allow, (), base), traits, "cuda")[0]

    @cached_property
    def best(self) -> float:
        """The highest throughput of any settings at any size up to the largest recorded one."""
        return max(
            self.throughput(settings, size)
            for settings in self.space.all()
            for size in range(self.sizes[0], self.sizes[-1] + 1)
            if self.at(settings, size).reserved_bytes <= CAP_BYTES
        )

    @property
    def best_recorded(self) -> float:
        """The highest throughput in the grid itself."""
        return max(float(row["batch_size"] / median(row["step_s"])) for row in self.recorded if row["fits"])

    def throughput(self, settings: Settings, size: int) -> float:
        """Samples per second."""
        return size / self.at(settings, size).step_s

    def at(self, settings: Settings, size: int) -> Point:
        """These settings at this size, recorded or worked out."""
        key = self._key(settings)
        known = self._points.get(key)
        if known is not None and (size in known or len(known) > 1):
            return _between(known, size)
        nearest = min(self._points, key=lambda other: self._distance(key, other))
        if known is not None:
            # One size was recorded: over sizes it behaves like its nearest relative with several.
            (own,) = known
            like = min((k for k in self._points if len(self._points[k]) > 1), key=lambda k: self._distance(key, k))
            return _scaled(known[own], _between(self._points[like], own), _between(self._points[like], size))
        point = self.at(self._settings(nearest), size)
        for index, value in enumerate(key):
            if value != nearest[index]:
                speed, memory = self._worth(index, nearest[index], value)
                point = replace(
                    point, step_s=point.step_s * exp(speed), reserved_bytes=point.reserved_bytes * exp(memory)
                )
        return point

    def probe(self, question: Question, budget: Budget, reserve_bytes: int) -> ProbeResult:
        """Answer at once."""
        settings, size, form = plain(question.settings), question.batch_size, question.form
        self.asked.append(question)
        point = self.at(settings, size)
        fits = point.reserved_bytes <= CAP_BYTES
        held = int(min(point.reserved_bytes, CAP_BYTES))
        answer = result(
            size,
            form,
            None if fits else OUT_OF_MEMORY,
            reason=question.reason,
            need_bytes=held,
            budget_bytes=CAP_BYTES,
            settings=question.settings,
        )
        random = Random(f"{self.seed} {len(self.asked)}")
        timed = fits and form is not Form.COMPARE
        measurement = replace(
            answer.measurement,
            step_seconds=tuple(
                point.step_s * random.choice(point.spread) for _ in range(form.steps - form.warm_up) if timed
            ),
            phases=(PhaseMemory(phase=Phase.FORWARD, peak_allocated_bytes=held, peak_reserved_bytes=held),),
            peak_allocated_bytes=held,
            peak_reserved_bytes=held,
            allocator_cap_bytes=CAP_BYTES,
            composition=self._composition,
            first_step_seconds=self._first_step_s(question, point) if fits else None,
            comparison=Comparison() if form is Form.COMPARE else None,
        )
        return replace(answer, measurement=measurement, seconds=self._seconds(question, point))

    def _seconds(self, question: Question, point: Point) -> float:
        """As the recorded probe took, but for the number of steps. A comparison runs the reference as well."""
        if point.reserved_bytes > CAP_BYTES:
            failed = [row["probe_s"] for row in self.recorded if not row["fits"]]
            return mean(failed) if failed else point.other_s + point.first_step_s
        seconds = point.other_s + self._first_step_s(question, point) + (question.form.steps - 1) * point.step_s
        if question.reference is not None:
            other = self.at(question.reference, question.batch_size)
            seconds += other.first_step_s + (question.form.steps - 1) * other.step_s
        return seconds

    def _first_step_s(self, question: Question, point: Point) -> float:
        """A compile that is done again costs what the cheapest recorded one did, which found its kernels in the cache."""
        if question.settings.compile is Compile.OFF or question.form is Form.COMPARE:
            return point.first_step_s
        pair = question.batch_size, plain(question.settings)
        times = [(q.batch_size, plain(q.settings)) for q in self.asked if q.form is not Form.COMPARE].count(pair)
        cached = min(row["first_step_s"] for row in self.recorded if row["fits"] and row["compile"])
        return point.first_step_s if times <= 1 else min(cached, point.first_step_s)

    def _varies(self, knob: str) -> bool:
        return len({row[knob] for row in self.recorded}) > 1

    def _key(self, settings: Settings) -> Key:
        own = OWN_PRECISION[self.workload]
        return (
            own if settings.precision is Precision.DEFAULT else str(settings.precision),
            settings.compile is not Compile.OFF,
            "fused" if settings.optimizer is OptimizerKind.FUSED else "foreach",
            settings.checkpointing is not Checkpointing.OFF,
            settings.memory_format is MemoryFormat.CHANNELS_LAST,
        )

    def _settings(self, key: Key) -> Settings:
        precision, compiled, optimizer, checkpointing, channels_last = key
        return Settings(
            precision=Precision(str(precision)),
            compile=Compile.DEFAULT if compiled else Compile.OFF,
            optimizer=OptimizerKind.FUSED if optimizer == "fused" else OptimizerKind.DEFAULT,
            checkpointing=Checkpointing.OWN if checkpointing else Checkpointing.OFF,
            memory_format=MemoryFormat.CHANNELS_LAST if channels_last else MemoryFormat.DEFAULT,
        )

    @property
    def _composition(self) -> Composition:
        """In fp32, with AdamW."""
        each = 4 * PARAMETERS[self.workload]
        return Composition(parameters_bytes=each, gradients_bytes=each, optimizer_bytes=2 * each)

    @cached_property
    def _points(self) -> dict[Key, dict[int, Point]]:
        points: dict[Key, dict[int, Point]] = defaultdict(dict)
        for row in self.recorded:
            if row["fits"]:
                step = median(row["step_s"])
                points[tuple(row[name] for name in _KEY)][row["batch_size"]] = Point(
                    step_s=step,
                    reserved_bytes=row["reserved_peak_bytes"],
                    first_step_s=row["first_step_s"],
                    other_s=max(0.0, row["probe_s"] - row["first_step_s"] - 8 * step),
                    spread=tuple(seconds / step for seconds in row["step_s"]),
                )
        return dict(points)

    def _distance(self, one: Key, other: Key) -> float:
        """What the knobs that differ are worth together."""
        pairs = enumerate(zip(one, other, strict=True))
        return sum(0.001 + abs(self._worth(index, a, b)[0]) for index, (a, b) in pairs if a != b)

    def _worth(self, index: int, before: object, after: object) -> tuple[float, float]:
        """Mean logarithm of what the change does to a step's time and memory, over pairs that differ in nothing else."""
        ratios = [
            (log(new.step_s / old.step_s), log(new.reserved_bytes / old.reserved_bytes))
            for key, points in self._points.items()
            if key[index] == before
            for size, old in points.items()
            if (new := self._points.get((*key[:index], after, *key[index + 1 :]), {}).get(size)) is not None
        ]
        if not ratios:
            return 0.0, 0.0
        return mean(speed for speed, _ in ratios), mean(memory for _, memory in ratios)


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
