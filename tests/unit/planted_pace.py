"""Searches of settings on workers whose probes take as long as on a GPU: where the time of a search goes, without one.

Memory and its recordings are those of a planted device. A step takes a fixed time and one for each sample, shorter or longer
with the settings; a probe takes its steps and a start.
"""

from dataclasses import dataclass, field, replace

from autotune.executors.ahead import Ahead
from autotune.model import (
    Budget,
    Checkpointing,
    Comparison,
    Compile,
    Form,
    MemoryFormat,
    Precision,
    ProbeResult,
    Question,
    Settings,
    Stop,
)
from autotune.search.batch import BatchFinder
from autotune.search.imagine import imagination
from autotune.search.settings import SettingsFinder
from autotune.units import MIB
from tests.fakes import drive, result
from tests.unit.planted_bench import PlantedBench
from tests.unit.planted_device import PlantedDevice
from tests.unit.planted_searches import NET
from tests.unit.planted_settings import space_of
from tests.unit.planted_traits import ON_CUDA

TRAITS = replace(ON_CUDA, blocks="Block", num_blocks=3, convolutions=True, attention=True)
START_S = 1.2
"""Of a probe: its process, the device, the model."""
COMPILE_S, CACHED_S = 24.0, 6.0
SAMPLE_S, HALF = 0.01, 20
"""Time of a sample; throughput is half of what it tends to at this size."""


@dataclass
class Paced:
    """A prober of a model whose speed follows from its settings, as that of tests/assets/gpu/paced.py does."""

    device: PlantedDevice = field(default_factory=lambda: PlantedDevice(workload=NET, limit_bytes=400 * MIB))
    benchmark: float = 1.03
    """Factor of a step's time with ``cudnn_benchmark``."""

    def probe(self, question: Question, budget: Budget, reserve_bytes: int) -> ProbeResult:
        size, form, settings = question.batch_size, question.form, question.settings
        if form is Form.COMPARE:
            fits = result(size, form, reason=question.reason, budget_bytes=budget.limit_bytes, settings=settings)
            seen = replace(fits.measurement, comparison=Comparison())
            return replace(fits, measurement=seen, seconds=self.seconds(question))
        answer = self.device.probe(question, budget, reserve_bytes)
        timed = answer.fits and question.trace_unit is None
        step_s = self.step_s(settings, size)
        seen = replace(
            answer.measurement,
            step_seconds=(step_s,) * (form.steps - form.warm_up) if timed else (),
            first_step_seconds=step_s + self._compiling_s(question) if timed else None,
        )
        return replace(answer, measurement=seen, settings=settings, seconds=self.seconds(question))

    def seconds(self, question: Question) -> float:
        """Of the whole probe."""
        settings, steps = question.settings, question.form.steps
        if question.trace_unit is not None:
            return START_S + steps * sum(self.step_s(settings, size) for size in (2, 3, 7))
        step_s = self.step_s(settings, question.batch_size)
        if question.form is Form.COMPARE:
            step_s += self.step_s(Settings(), question.batch_size)
        return START_S + steps * step_s + self._compiling_s(question)

    def step_s(self, settings: Settings, size: int) -> float:
        """Of one step."""
        factors = {
            Precision.BF16: 0.5,
            Precision.FP16: 0.54,
            MemoryFormat.CHANNELS_LAST: 0.93,
            Checkpointing.BLOCKS: 2.0,
            Checkpointing.ALTERNATE: 1.5,
        }
        seconds = SAMPLE_S * (HALF + size) * settings.accumulate
        for value in (settings.precision, settings.memory_format, settings.checkpointing):
            seconds *= factors.get(value, 1.0)
        seconds *= {"flash": 1.05, "cudnn": 1.04}.get(settings.attention, 1.0)
        seconds *= 1.0 if settings.compile is Compile.OFF else 0.7
        return seconds * (self.benchmark if settings.cudnn_benchmark else 1.0)

    def _compiling_s(self, question: Question) -> float:
        if question.settings.compile is Compile.OFF:
            return 0.0
        return CACHED_S if question.form is Form.LONG else COMPILE_S  # what is certified was timed before


@dataclass(frozen=True)
class Run:
    """A search that is over."""

    stop: Stop
    history: list[ProbeResult]
    bench: PlantedBench

    @property
    def candidates(self) -> set[Settings]:
        """Settings other than the user's own that were timed."""
        return {probe.settings for probe in self.history if probe.form is Form.TIMED and probe.settings != Settings()}

    @property
    def found(self) -> list[tuple[object, ...]]:
        """What was asked and answered, in order."""
        return [
            (p.batch_size, p.form, p.reason, p.settings, p.outcome, p.measurement.step_seconds) for p in self.history
        ]

    @property
    def timeline(self) -> str:
        """A line for each probe, as it began."""
        lines = []
        for began, ended, asked in self.bench.spans:
            changes = ", ".join(f"{name}={value}" for name, value in asked.settings.changes(Settings()).items())
            what = f"{asked.form} {asked.reason}"
            lines.append(f"{began:6.1f} s +{ended - began:4.1f} s  {what:20} batch {asked.batch_size:3}  {changes}")
        return "\n".join(lines)


def paced_search(machine: Paced, width: int, *, forbid: tuple[str, ...] = ("compile", "allocator")) -> Run:
    """A search of the settings that a small model has on CUDA, on so many workers."""
    space = space_of(traits=TRAITS, forbid=forbid)
    finder = SettingsFinder(finder=BatchFinder(settings=space.base, trace=True, recommend=False), space=space)
    bench = PlantedBench(machine, width=width, takes=machine.seconds)
    ahead = Ahead(finder, bench, (), imagination(finder))
    return Run(*drive(finder, ahead, machine.device.budget, at_most=100), bench)
