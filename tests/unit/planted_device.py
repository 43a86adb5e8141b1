"""A device without a GPU: planted workloads on the arithmetic of PyTorch's allocator.

What a probe would say is exact and takes about a millisecond, so brute force over all sizes tells the truth.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import zip_longest

from autotune.memory.allocator import Block, CachingAllocator, OutOfCap
from autotune.memory.allocator_config import AllocatorConfig, Unreplayable
from autotune.memory.ladder import next_size
from autotune.model import (
    Budget,
    Cause,
    Failure,
    Form,
    Mark,
    Measurement,
    Outcome,
    PassPeaks,
    Phase,
    PhaseMemory,
    ProbeResult,
    Question,
    Trace,
)
from autotune.units import MIB
from tests.fakes import BUDGET, REJECTED, result
from tests.unit.planted_workloads import Request, Workload

SETTLE_STEPS = 6
"""A short probe whose allocator still retries goes on to this step, as the real one does."""
STEP = (Phase.DATA, Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)
NOBODY: Callable[[int], bool] = lambda size: False


class Process:
    """One process: builds the workload, then trains it at one size after the other; the allocator serves and records."""

    def __init__(self, workload: Workload, config: AllocatorConfig, cap_bytes: int | None) -> None:
        self._workload = workload
        self._memory = CachingAllocator(config, cap_bytes)
        self._blocks: dict[int, Block] = {}
        self._sizes: list[int] = []
        self._events: list[int] = []
        self._marks: list[Mark] = []
        self._batch: list[int] = []
        self._ending: dict[Phase, list[int]] = {}
        """What the next such phase ends, in the order it was made."""
        self._state: list[int] | None = None
        self._cached: set[Request] = set()
        self.passes: list[PassPeaks] = []
        self.phases: dict[Phase, tuple[int, int]] = {}
        """Peaks of the pass, and of the building: allocated, reserved."""
        self.retries: list[int] = []
        """In each step of the pass."""
        self.after: list[int] = []
        """Allocated after each step of the pass, the batch apart."""
        self.step = 0
        self._size = 0
        """Of the batch that is worked on."""
        self.evaluated_after: int | None = None
        """Steps of the pass before its evaluation."""
        self.phase = Phase.LOAD
        self.requested_bytes = 0
        """By the last request."""

    def build(self) -> None:
        """Make the model."""
        self._begin(Phase.BUILD, 0)
        for request in self._workload:
            if request.born is Phase.BUILD:
                for size in request.sizes(1):
                    self._make(size)

    def train(self, batch_size: int, form: Form, evaluate_at: int | None = None) -> None:
        """One pass, as a probe of this form makes it."""
        self.retries, self.after, self.step = [], [], 0
        self.evaluated_after = None
        self._evaluation = batch_size if evaluate_at is None else evaluate_at
        self.phases = {phase: peaks for phase, peaks in self.phases.items() if phase is Phase.BUILD}
        while not self._enough(form):
            self.step += 1
            before = self._memory.retries
            for phase in STEP:
                self._run(phase, batch_size)
            self.retries.append(self._memory.retries - before)
            self.after.append(self._memory.allocated_bytes - sum(self._blocks[one][1] for one in self._batch))
            if self.step == form.steps_before_pause:
                self._evaluate(batch_size)
        if form is Form.SHORT:
            self._evaluate(batch_size)
        peaks = self.phases.values()
        self.passes.append(PassPeaks(batch_size, self.step, max(a for a, _ in peaks), max(r for _, r in peaks)))

    def clear(self) -> None:
        """Let go of all that the pass left but the model and what libraries keep; give cached memory back."""
        self._begin(Phase.EXIT, self.passes[-1].batch_size)
        left = [
            *self._batch,
            *(number for numbers in self._ending.values() for number in numbers),
            *(self._state or ()),
        ]
        for number in dict.fromkeys(left):
            self._end(number)
        self._batch, self._ending, self._state = [], {}, None
        self._memory.release_cached()

    def trace(self) -> Trace:
        """What the allocator recorded so far."""
        return Trace(tuple(self._sizes), (), tuple(self._events), tuple(self._marks), tuple(self.passes))

    @property
    def allocated_bytes(self) -> int:
        """Highest of the phases."""
        return max(allocated for allocated, _ in self.phases.values())

    @property
    def reserved_bytes(self) -> int:
        """Highest of the phases."""
        return max(reserved for _, reserved in self.phases.values())

    @property
    def held_bytes(self) -> int:
        """What no batch changes: the model and the optimizer's state."""
        built = sum(sum(request.sizes(1)) for request in self._workload if request.born is Phase.BUILD)
        return built + sum(self._sizes[number - 1] for number in self._state or ())

    def _enough(self, form: Form) -> bool:
        if self.step < form.steps:
            return False
        unsettled = form is not Form.LONG and any(self.retries[-Form.SHORT.steady_steps :])
        return not unsettled or self.step >= SETTLE_STEPS

    def _evaluate(self, batch_size: int) -> None:
        if self._evaluation and any(request.born is Phase.EVALUATE for request in self._workload):
            self.evaluated_after = len(self.retries)
            self._size = self._evaluation
            self._begin(Phase.EVALUATE, batch_size)
            self._make_batch()
            self._run(Phase.EVALUATE, batch_size, begins=False)

    def thrashes(self, form: Form) -> bool:
        """Whether retries went on in steady state, to which the step after an evaluation does not belong."""
        steady = range(max(0, len(self.retries) - form.steady_steps), len(self.retries))
        return any(self.retries[i] for i in steady if i != self.evaluated_after)

    def _run(self, phase: Phase, batch_size: int, *, begins: bool = True) -> None:
        if begins:
            self._size = batch_size
        if phase is Phase.DATA:
            self._swap_batch(batch_size)
            for number in self._ending.pop(Phase.DATA, []):  # gradients are cleared before the forward
                self._end(number)
            return
        if begins:
            self._begin(phase, batch_size)
        ended = self._ending.pop(phase, [])[::-1]
        keeps_state = phase is Phase.OPTIMIZER and self._state is None
        for request, one in zip_longest(list(self._requests(phase, keeps_state)), ended):
            if request is not None:
                self._serve(*request)
            if one is not None:
                self._end(one)
        if keeps_state:
            self._state = self._state or []

    def _requests(self, phase: Phase, keeps_state: bool) -> Iterator[tuple[Request, int]]:
        """Of one phase, in order; ``(request, bytes)``."""
        for request in self._workload:
            if request.born is phase and (request.ended or phase is not Phase.OPTIMIZER or keeps_state):
                for size in request.sizes(self._size):
                    yield request, size

    def _serve(self, request: Request, size: int) -> None:
        if request.ended is None and request.born is not Phase.OPTIMIZER:
            if request not in self._cached:
                self._cached.add(request)
                self._make(size)
            return
        number = self._make(size)
        if request.ended is None:
            self._state = [*(self._state or ()), number]
        elif request.ended is request.born:
            self._end(number)
        else:
            self._ending.setdefault(request.ended, []).append(number)

    def _swap_batch(self, batch_size: int) -> None:
        """A batch is made while the former one is alive."""
        self._begin(Phase.DATA, batch_size)
        self._make_batch()

    def _make_batch(self) -> None:
        made = [self._make(size) for _, size in self._requests(Phase.DATA, keeps_state=False)]
        for number in self._batch:
            self._end(number)
        self._batch = made

    def _begin(self, phase: Phase, batch_size: int) -> None:
        self._marks.append(Mark(len(self._events), phase, self.step, batch_size))
        self.phase = phase
        self._note()

    def _note(self) -> None:
        allocated, reserved = self.phases.get(self.phase, (0, 0))
        memory = self._memory
        self.phases[self.phase] = (max(allocated, memory.allocated_bytes), max(reserved, memory.reserved_bytes))

    def _make(self, size: int) -> int:
        self.requested_bytes = size
        block = self._memory.malloc(size)
        self._sizes.append(size)
        number = len(self._sizes)
        self._events.append(number)
        self._blocks[number] = block
        self._note()
        return number

    def _end(self, number: int) -> None:
        self._memory.free(self._blocks.pop(number))
        self._events.append(-number)


@dataclass(frozen=True)
class Run:
    """A process that trained at one size, as far as it came."""

    process: Process
    out_of_memory: bool

    def thrashes(self, form: Form) -> bool:
        """Whether retries went on in steady state."""
        return self.process.thrashes(form)


@cache
def run(
    workload: Workload, allocator: str, cap_bytes: int, batch_size: int, form: Form, evaluate_at: int | None = None
) -> Run:
    """What really happens at this size."""
    process = Process(workload, _config(allocator), cap_bytes)
    try:
        process.build()
        process.train(batch_size, form, evaluate_at)
    except OutOfCap:
        return Run(process, out_of_memory=True)
    return Run(process, out_of_memory=False)


def _config(allocator: str) -> AllocatorConfig:
    """Options that have no replay are taken for the defaults: memory has to come from somewhere."""
    try:
        return AllocatorConfig.parse(allocator)
    except Unreplayable:
        return AllocatorConfig()


@dataclass(kw_only=True)
class PlantedDevice:
    """A prober without processes. Its cap is right from the first probe on: ``reserve_bytes`` is not modelled."""

    workload: Workload
    limit_bytes: int
    """The budget."""
    allocator: str = ""
    """That the truth is told for; a probe uses that of its question."""
    outside_bytes: int = 64 * MIB
    """Non-PyTorch memory, the same in each probe."""
    rejects: Callable[[int], bool] = NOBODY
    """Sizes at which the workload raises an error of its own."""
    records: bool = True
    """Whether PyTorch can record here at all."""
    asked: list[Question] = field(default_factory=list)
    """Everything asked so far, oldest first."""

    @property
    def budget(self) -> Budget:
        """For ``drive``."""
        return replace(BUDGET, limit_bytes=self.limit_bytes)

    @property
    def cap_bytes(self) -> int:
        """What the allocator may reserve."""
        return self.limit_bytes - self.outside_bytes

    def probe(self, question: Question, budget: Budget, reserve_bytes: int) -> ProbeResult:
        """Answer at once."""
        assert budget.limit_bytes == self.limit_bytes
        self.asked.append(question)
        if question.trace_unit is not None:
            return self._record(question, question.trace_unit)
        if self.rejects(question.batch_size):
            return self._rejected(question)
        allocator, size = question.settings.allocator, question.batch_size
        seen = run(self.workload, allocator, self.cap_bytes, size, question.form, question.evaluate_at)
        return self._told(question, seen.process, out_of_memory=seen.out_of_memory)

    def safe(self, batch_size: int, evaluate_at: int | None = None) -> bool:
        """The truth: whether a long probe of this size succeeds, with its evaluation at another."""
        if self.rejects(batch_size):
            return False
        seen = run(self.workload, self.allocator, self.cap_bytes, batch_size, Form.LONG, evaluate_at)
        return not seen.out_of_memory and not seen.thrashes(Form.LONG)

    def limits(self, bound: int, unit: int = 1, first: int = 1) -> list[int]:
        """The truth, by brute force: every safe multiple of ``unit`` whose next one is not safe, from ``first`` to
        ``bound``."""
        sizes = range(-(-first // unit) * unit, bound + 1, unit)
        return [size for size in sizes if self.safe(size) and not self.safe(size + unit)]

    def _record(self, question: Question, unit: int) -> ProbeResult:
        process = Process(self.workload, _config(question.settings.allocator), self.cap_bytes)
        tried: list[int] = []
        size: int | None = question.batch_size
        rejected = out_of_memory = False
        try:
            process.build()
            while size is not None and not rejected:
                question = replace(question, batch_size=size)
                tried.append(size)
                rejected = self.rejects(size)
                size = None if rejected else self._record_pass(process, question, tried, unit)
        except OutOfCap:
            out_of_memory = True
        answer = self._rejected(question) if rejected else self._told(question, process, out_of_memory=out_of_memory)
        return replace(answer, trace=process.trace() if process.passes and self.records else None)

    def _record_pass(self, process: Process, question: Question, tried: Sequence[int], unit: int) -> int | None:
        """The size of the next pass."""
        process.train(question.batch_size, question.form, question.evaluate_at)
        held_bytes = process.held_bytes
        process.clear()
        return next_size(
            process.passes,
            tried,
            unit=unit,
            cap_bytes=self.cap_bytes,
            held_bytes=held_bytes,
            largest=question.trace_largest,
        )

    def _rejected(self, question: Question) -> ProbeResult:
        answer = result(
            question.batch_size, question.form, REJECTED, reason=question.reason, budget_bytes=self.limit_bytes
        )
        return replace(answer, settings=question.settings)

    def _told(self, question: Question, process: Process, *, out_of_memory: bool) -> ProbeResult:
        outcome, failure = Outcome.FITS, None
        if out_of_memory:
            outcome = Outcome.OUT_OF_MEMORY
            failure = Failure(
                cause=Cause.DEVICE_MEMORY,
                message=f"planted: no room for {process.requested_bytes} bytes",
                phase=process.phase,
                step=process.step,
                requested_bytes=process.requested_bytes,
            )
        elif process.thrashes(question.form):
            outcome = Outcome.UNSAFE
            failure = Failure(cause=Cause.THRASHING, message="planted: the allocator retries")
        measurement = Measurement(
            steps_asked=question.form.steps,
            steps_executed=len(process.after),
            observed_batch=question.batch_size,
            phases=tuple(
                PhaseMemory(phase=phase, peak_allocated_bytes=allocated, peak_reserved_bytes=reserved)
                for phase, (allocated, reserved) in process.phases.items()
                if phase is not Phase.EXIT
            ),
            peak_allocated_bytes=process.allocated_bytes,
            peak_reserved_bytes=process.reserved_bytes,
            non_pytorch_bytes=self.outside_bytes,
            peak_device_bytes=process.reserved_bytes + self.outside_bytes,
            allocator_cap_bytes=self.cap_bytes,
            retries_per_step=tuple(process.retries),
            allocated_after_step=tuple(process.after),
            evaluated=process.evaluated_after is not None and not out_of_memory,
            evaluated_after=process.evaluated_after,
        )
        answer = result(question.batch_size, question.form, reason=question.reason, budget_bytes=self.limit_bytes)
        return replace(
            answer,
            outcome=outcome,
            failure=failure,
            measurement=measurement,
            settings=question.settings,
            evaluate_at=question.evaluate_at,
        )
