"""A recorded grid as a machine to search on. What the grid interpolates is its truth, and regret is against the best of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from random import Random

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
from autotune.search.apart import plain
from autotune.units import GIB
from tests.fakes import BUDGET, OUT_OF_MEMORY, result
from tests.grids import Grid, Key, Point

CAP_BYTES = 40 * GIB
OWN_PRECISION: Mapping[str, str] = {"gpt2": "fp32", "resnet50": "tf32"}
"""What PyTorch does without being told: matrix products in strict fp32, convolutions in tf32."""
PARAMETERS: Mapping[str, int] = {"gpt2": 124_439_808, "resnet50": 25_557_032}


@dataclass
class RecordedMachine:
    """A prober that answers from a grid, at the recorded cost."""

    workload: str
    seed: int = 0
    """Of the order in which recorded step times come."""
    compiles: bool = True
    """Whether compiling belongs to the space."""
    asked: list[Question] = field(default_factory=list)
    """Everything asked so far, oldest first."""

    @cached_property
    def grid(self) -> Grid:
        """What was recorded."""
        return Grid(self.workload)

    @property
    def budget(self) -> Budget:
        """For ``drive``."""
        return replace(BUDGET, limit_bytes=CAP_BYTES)

    @cached_property
    def space(self) -> Space:
        """The combinations the grid is about."""
        checkpoints, convolutions = self.grid.varies("checkpointing"), self.grid.varies("channels_last")
        traits = Traits(
            own_checkpointing="transformers" if checkpoints else "",
            blocks="Block" if checkpoints else "",
            convolutions=convolutions,
            optimizer_kinds=("for-loop", "foreach", "fused"),
        )
        base = Settings()
        allow = ["precision=bf16,fp16,tf32,fp32", "optimizer=fused"]
        allow += ["compile=default"] if self.compiles else []
        allow += ["checkpointing=own"] if checkpoints else []
        allow += ["memory_format=channels_last"] if convolutions else []
        return make_space(base, choices((), allow, (), base), traits, "cuda")[0]

    @cached_property
    def best(self) -> float:
        """The highest throughput of any settings at any size that fits, up to the largest recorded one.

        Between recorded sizes a step is a line in the batch, and throughput rises or falls all the way.
        """
        sizes = range(self.grid.sizes[0], self.grid.sizes[-1] + 1)
        return max(
            self.throughput(settings, size)
            for settings in self.space.all()
            for size in {*self.grid.sizes, max(n for n in sizes if self.fits(settings, n))}
            if self.fits(settings, size)
        )

    def throughput(self, settings: Settings, size: int) -> float:
        """Samples per second."""
        return size / self.at(settings, size).step_s

    def fits(self, settings: Settings, size: int) -> bool:
        """Whether there is memory for it."""
        return self.at(settings, size).reserved_bytes <= CAP_BYTES

    def at(self, settings: Settings, size: int) -> Point:
        """These settings at this size."""
        return self.grid.at(self.key(settings), size)

    def key(self, settings: Settings) -> Key:
        """What the grid has the settings under."""
        return (
            OWN_PRECISION[self.workload] if settings.precision is Precision.DEFAULT else str(settings.precision),
            settings.compile is not Compile.OFF,
            "fused" if settings.optimizer is OptimizerKind.FUSED else "foreach",
            settings.checkpointing is not Checkpointing.OFF,
            settings.memory_format is MemoryFormat.CHANNELS_LAST,
        )

    def probe(self, question: Question, budget: Budget, reserve_bytes: int) -> ProbeResult:
        """Answer at once."""
        size, form = question.batch_size, question.form
        self.asked.append(question)
        point = self.at(question.settings, size)
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
        each = 4 * PARAMETERS[self.workload]
        measurement = replace(
            answer.measurement,
            step_seconds=tuple(
                point.step_s * random.choice(point.spread) for _ in range(form.steps - form.warm_up) if timed
            ),
            phases=(PhaseMemory(phase=Phase.FORWARD, peak_allocated_bytes=held, peak_reserved_bytes=held),),
            peak_allocated_bytes=held,
            peak_reserved_bytes=held,
            allocator_cap_bytes=CAP_BYTES,
            composition=Composition(parameters_bytes=each, gradients_bytes=each, optimizer_bytes=2 * each),
            first_step_seconds=self._first_step_s(question, point) if fits else None,
            comparison=Comparison() if form is Form.COMPARE else None,
        )
        return replace(answer, measurement=measurement, seconds=self._seconds(question, point, fits=fits))

    def _seconds(self, question: Question, point: Point, *, fits: bool) -> float:
        """As the recorded probe took, but for the number of steps. A comparison runs the reference as well."""
        if not fits:
            return self.grid.failed_s or point.other_s + point.first_step_s
        seconds = point.other_s + self._first_step_s(question, point) + (question.form.steps - 1) * point.step_s
        if question.reference is not None:
            other = self.at(question.reference, question.batch_size)
            seconds += other.first_step_s + (question.form.steps - 1) * other.step_s
        return seconds

    def _first_step_s(self, question: Question, point: Point) -> float:
        """A compile that is done again finds its kernels; that of a comparison, with dropout off, is another one."""
        if question.settings.compile is Compile.OFF or question.form is Form.COMPARE:
            return point.first_step_s
        pair = question.batch_size, plain(question.settings)
        times = [(q.batch_size, plain(q.settings)) for q in self.asked if q.form is not Form.COMPARE].count(pair)
        return point.first_step_s if times <= 1 else min(self.grid.cached_compile_s, point.first_step_s)
