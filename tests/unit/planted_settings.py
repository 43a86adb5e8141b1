"""A machine without a GPU on which every knob is worth what was planted, and brute force tells the truth."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import exp
from random import Random

from autotune.knobs import Space, choices, make_space
from autotune.model import (
    Budget,
    Cause,
    Comparison,
    Compile,
    Composition,
    Form,
    Outcome,
    Phase,
    PhaseMemory,
    ProbeResult,
    Question,
    Settings,
    Traits,
)
from autotune.search.apart import plain
from autotune.units import MIB
from tests.fakes import BUDGET, OUT_OF_MEMORY, Fault, result
from tests.unit.planted_traits import RICH

TRAITS = replace(RICH, data_set=False, cpu_cores=8, tensor_plan=False, ranks=1)
CHANGES_TRAINING = Fault(outcome=Outcome.CHANGES_TRAINING, cause=Cause.GRADIENTS_DIFFER)
UNSUPPORTED = Fault(outcome=Outcome.UNSUPPORTED, cause=Cause.NOT_SUPPORTED)
Worth = Mapping[tuple[str, object], float]
"""Knob and value -> logarithm."""


def space_of(
    *,
    base: Settings | None = None,
    allow: tuple[str, ...] = (),
    forbid: tuple[str, ...] = (),
    fix: tuple[str, ...] = (),
    traits: Traits = TRAITS,
    device: str = "cuda",
) -> Space:
    """What the real registry of knobs makes of such options."""
    base = base or Settings()
    return make_space(base, choices(fix, allow, forbid, base), traits, device)[0]


@dataclass(kw_only=True)
class PlantedMachine:
    """A prober. Speed: effects of values and of pairs of values add up in the logarithm. Memory: a line in the batch."""

    space: Space
    speed: Worth = field(default_factory=dict)
    pairs: Mapping[tuple[tuple[str, object], tuple[str, object]], float] = field(default_factory=dict)
    """Of two values together, on top."""
    memory: Worth = field(default_factory=dict)
    """Of the memory of a sample."""
    samples_per_second: float = 100.0
    """Of the user's own settings, where the batch is large."""
    half: float = 2.0
    """Batch size at which half of it is reached."""
    slower: Callable[[int], float] | None = None
    """Factor of the time of a step, by its size; None = none, so that the largest batch is the fastest."""
    fixed_bytes: int = 500 * MIB
    sample_bytes: int = 1000 * MIB
    limit_bytes: int = 40_000 * MIB
    comparing_bytes: int = 0
    """What there is for a comparison, where it manages with less memory than training does; 0 = the same."""
    noise: float = 0.0
    """Deviation of a step's time, as a share."""
    seed: int = 0
    start_s: float = 1.0
    """Of a probe's process."""
    compile_s: float = 30.0
    compares: Callable[[Settings], Fault | None] = lambda settings: None
    fails: Callable[[Settings, int, Form], Fault | None] = lambda settings, size, form: None
    asked: list[Question] = field(default_factory=list)
    """Everything asked so far, oldest first."""
    _compiled: set[tuple[Settings, int]] = field(default_factory=set)

    @property
    def budget(self) -> Budget:
        """For ``drive``."""
        return replace(BUDGET, limit_bytes=self.limit_bytes)

    def probe(self, question: Question, budget: Budget, reserve_bytes: int) -> ProbeResult:
        """Answer at once."""
        settings, size, form = question.settings, question.batch_size, question.form
        attempt = Counter((q.batch_size, q.form, plain(q.settings)) for q in self.asked)[size, form, plain(settings)]
        self.asked.append(question)
        fault = self._fault(question)
        held = min(self.held_bytes(settings, size), self.limit_bytes)
        answer = result(
            size, form, fault, reason=question.reason, budget_bytes=self.limit_bytes, need_bytes=held, settings=settings
        )
        step = self.step_seconds(settings, size)
        compiling = self._compile_seconds(question)
        random = Random(f"{self.seed} {settings} {size} {form} {attempt}")
        timed = form in (Form.SHORT, Form.TIMED, Form.LONG) and fault is None
        seconds = tuple(step * max(0.1, random.gauss(1, self.noise)) for _ in range(form.steps - form.warm_up) if timed)
        measurement = replace(
            answer.measurement,
            step_seconds=seconds,
            phases=(PhaseMemory(phase=Phase.FORWARD, peak_allocated_bytes=held, peak_reserved_bytes=held),),
            peak_allocated_bytes=held,
            peak_reserved_bytes=held,
            peak_device_bytes=held,
            allocator_cap_bytes=self.limit_bytes,
            composition=Composition(parameters_bytes=self.fixed_bytes),
            first_step_seconds=None if fault else step + compiling,
            comparison=Comparison() if form is Form.COMPARE else None,
        )
        steps = 2 * form.steps if form is Form.COMPARE else form.steps
        return replace(answer, measurement=measurement, seconds=self.start_s + steps * step + compiling)

    def held_bytes(self, settings: Settings, size: int) -> int:
        """What a step holds at its peak."""
        return self.fixed_bytes + int(self.sample_bytes * exp(self._sum(self.memory, settings)) * size)

    def step_seconds(self, settings: Settings, size: int) -> float:
        """Of an optimizer step."""
        worth = self._sum(self.speed, settings)
        worth += sum(
            value for (one, other), value in self.pairs.items() if _has(settings, *one) and _has(settings, *other)
        )
        micro = (self.half + size) / self.samples_per_second / exp(worth)
        micro *= self.slower(size) if self.slower else 1.0
        return micro * settings.accumulate

    def throughput(self, settings: Settings, size: int) -> float:
        """Samples per second."""
        return size * settings.accumulate / self.step_seconds(settings, size)

    def limit(self, settings: Settings) -> int:
        """The largest size that fits; 0 if none does."""
        each = int(self.sample_bytes * exp(self._sum(self.memory, settings)))
        size = max(0, (self.limit_bytes - self.fixed_bytes) // each)
        return size

    def safe(self, settings: Settings, size: int) -> bool:
        """Whether a long probe succeeds."""
        return size <= self.limit(settings) and self.fails(settings, size, Form.LONG) is None

    def valid(self) -> Iterator[Settings]:
        """All settings of the space that train the same, or are the user's own."""
        for settings in map(plain, self.space.all()):
            if settings == plain(self.space.base) or self.compares(settings) is None:
                yield settings

    @cached_property
    def best(self) -> float:
        """The highest throughput that any valid settings reach at any safe size."""
        return max(self.best_of(settings) for settings in self.valid())

    def best_of(self, settings: Settings) -> float:
        """The highest throughput that these settings reach at any safe size; 0 if none is safe."""
        sizes = range(1 if self.slower else max(1, self.limit(settings)), self.limit(settings) + 1)
        return max((self.throughput(settings, n) for n in sizes if self.safe(settings, n)), default=0.0)

    def _sum(self, worth: Worth, settings: Settings) -> float:
        return sum(value for (knob, of), value in worth.items() if _has(settings, knob, of))

    def _fault(self, question: Question) -> Fault | None:
        settings, size = plain(question.settings), question.batch_size
        fault = self.fails(settings, size, question.form)
        if fault is None and size > self.limit(settings) and question.form is not Form.COMPARE:
            fault = OUT_OF_MEMORY
        if question.form is Form.COMPARE:
            assert question.reference is not None
            room = self.comparing_bytes or self.limit_bytes
            if max(self.held_bytes(question.reference, size), self.held_bytes(settings, size)) > room:
                return OUT_OF_MEMORY
            fault = fault or self.compares(question.settings)
        return fault

    def _compile_seconds(self, question: Question) -> float:
        """The same graph at the same size is compiled once; a comparison, with its dropout off, has one of its own."""
        if question.settings.compile is Compile.OFF:
            return 0.0
        key = plain(question.settings), question.batch_size
        cached = question.form is not Form.COMPARE and key in self._compiled
        self._compiled.add(key)
        return self.compile_s * (0.2 if cached else 1.0)


def _has(settings: Settings, knob: str, value: object) -> bool:
    return bool(getattr(settings, knob) == value)
