"""A prober without processes, and the loop that drives a strategy with it: search tests are exact and take no time."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from autotune.model import (
    Budget,
    Cause,
    Failure,
    Form,
    Machine,
    Measurement,
    Outcome,
    Phase,
    PhaseMemory,
    ProbeResult,
    Question,
    Reason,
    Settings,
    Stop,
    WorkloadInfo,
)
from autotune.ports import Prober, Strategy
from autotune.search.apart import plain
from autotune.units import GIB

MACHINE = Machine(
    device="cpu",
    device_name="planted",
    device_uuid="",
    device_index=0,
    capacity_bytes=16 * GIB,
    driver_version="",
    torch_version="2.13.0",
    cuda_version="",
    python_version="3.11.7",
    platform="Linux",
)
WORKLOAD = WorkloadInfo(
    ref="planted.py",
    fingerprint="planted.py",
    recognised=(),
    parameters=10,
    trainable_parameters=10,
    parameters_bytes=40,
    trainable_bytes=40,
    optimizer="SGD",
    batch="float32 [B, 4]",
    data_set_size=None,
    evaluates=False,
)
BUDGET = Budget(limit_bytes=1000, source="--memory-limit", capacity_bytes=1000, others_bytes=0, headroom_bytes=0)


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A planted failure."""

    outcome: Outcome
    cause: Cause
    phase: Phase = Phase.FORWARD
    confirm: bool = False
    observed_batch: int | None = None
    error_type: str = ""


REJECTED = Fault(outcome=Outcome.WORKLOAD_ERROR, cause=Cause.USER_CODE, error_type="builtins.AssertionError")
SEGFAULT = Fault(outcome=Outcome.CRASHED, cause=Cause.SIGNAL)
KILLED = Fault(outcome=Outcome.CRASHED, cause=Cause.SIGNAL, confirm=True)
VANISHED = Fault(outcome=Outcome.CRASHED, cause=Cause.NO_ANSWER)
LIBRARY = Fault(outcome=Outcome.CRASHED, cause=Cause.LIBRARY_STATUS, confirm=True)
NOT_FINITE = Fault(outcome=Outcome.UNSTABLE, cause=Cause.NON_FINITE)
HANGS = Fault(outcome=Outcome.TIMED_OUT, cause=Cause.TIMEOUT)
OUT_OF_MEMORY = Fault(outcome=Outcome.OUT_OF_MEMORY, cause=Cause.DEVICE_MEMORY)
EVALUATION_FAILS = Fault(outcome=Outcome.OUT_OF_MEMORY, cause=Cause.DEVICE_MEMORY, phase=Phase.EVALUATE)
OVER_BUDGET = Fault(outcome=Outcome.UNSAFE, cause=Cause.OVER_BUDGET)
LEAKS = Fault(outcome=Outcome.UNSAFE, cause=Cause.GROWTH)
NO_STEPS = Fault(outcome=Outcome.WORKLOAD_ERROR, cause=Cause.NO_STEPS)
BUG = Fault(outcome=Outcome.WORKLOAD_ERROR, cause=Cause.USER_BUG, error_type="builtins.NameError")
BROKEN_MACHINE = Fault(outcome=Outcome.UNSUPPORTED, cause=Cause.ENVIRONMENT)
FAULTS = (
    BROKEN_MACHINE,
    BUG,
    HANGS,
    KILLED,
    LEAKS,
    LIBRARY,
    NOT_FINITE,
    OUT_OF_MEMORY,
    OVER_BUDGET,
    REJECTED,
    SEGFAULT,
    VANISHED,
)
"""One of each kind that a search of settings may meet as well."""


def ends_at(samples: int | None) -> Fault:
    """The failure of a batch that came out with this many samples."""
    return Fault(outcome=Outcome.SIZE_LIMIT, cause=Cause.DATA_SET, phase=Phase.DATA, observed_batch=samples)


def result(
    batch_size: int,
    form: Form = Form.SHORT,
    fault: Fault | None = None,
    *,
    reason: Reason = Reason.START,
    need_bytes: int = 0,
    budget_bytes: int = BUDGET.limit_bytes,
    step_seconds: float | None = None,
    settings: Settings | None = None,
    evaluate_at: int | None = None,
    evaluated: int | None = None,
) -> ProbeResult:
    """A finished probe; it fits if there is no fault. ``evaluated``: the size at which its evaluation ran to its end."""
    failure = None
    if fault is not None:
        failure = Failure(
            cause=fault.cause,
            message=f"planted: {fault.cause}",
            phase=fault.phase,
            confirm=fault.confirm,
            error_type=fault.error_type,
        )
    return ProbeResult(
        batch_size=batch_size,
        form=form,
        reason=reason,
        outcome=fault.outcome if fault else Outcome.FITS,
        failure=failure,
        measurement=Measurement(
            steps_asked=3,
            steps_executed=0 if fault else 3,
            observed_batch=fault.observed_batch if fault else batch_size,
            step_seconds=() if step_seconds is None or fault else (step_seconds, step_seconds),
            phases=(PhaseMemory(phase=Phase.FORWARD, peak_allocated_bytes=min(need_bytes, budget_bytes)),),
            peak_allocated_bytes=min(need_bytes, budget_bytes),
            peak_device_bytes=min(need_bytes, budget_bytes),
            evaluated=evaluated is not None,
            evaluated_batch=evaluated,
        ),
        budget_bytes=budget_bytes,
        launcher="fork",
        started_at=datetime(2024, 1, 1, tzinfo=UTC),
        seconds=1.0,
        settings=settings or Settings(),
        evaluate_at=evaluate_at,
    )


@dataclass(kw_only=True)
class FakeProber:
    """Needs ``fixed + per_sample · batch`` bytes; what does not fit the budget is out of memory, unless a fault is planted."""

    fixed_bytes: int = 0
    per_sample_bytes: int = 1
    long_extra_bytes: int = 0
    """What the long form needs on top."""
    fault: Callable[[int, Form, int], Fault | None] = lambda size, form, attempt: None
    """Size, form, and how often this very probe ran before; a fault takes precedence over memory."""
    step_seconds: Callable[[int], float] | None = None
    evaluate: Callable[[int, Question], Fault | None] | None = None
    """What becomes of the evaluation: by its size and the question; None = the workload has none."""
    asked: list[Question] = field(default_factory=list)
    """Everything asked so far, oldest first."""

    def probe(self, question: Question, budget: Budget, reserve_bytes: int) -> ProbeResult:
        """Answer at once; the reserve is not modelled."""
        size, form = question.batch_size, question.form
        attempt = Counter((q.batch_size, q.form, q.settings) for q in self.asked)[size, form, question.settings]
        self.asked.append(question)
        need_bytes = self.fixed_bytes + self.per_sample_bytes * size
        need_bytes += self.long_extra_bytes if form is Form.LONG else 0
        fault = self.fault(size, form, attempt)
        if fault is None and need_bytes > budget.limit_bytes:
            fault = OUT_OF_MEMORY
        evaluated = size if question.evaluate_at is None else question.evaluate_at
        evaluates = self.evaluate is not None and evaluated and form in (Form.SHORT, Form.LONG, Form.EVALUATE)
        if evaluates and self.evaluate is not None and fault is None:
            fault = self.evaluate(evaluated, question)
        answer = result(
            size,
            form,
            fault,
            reason=question.reason,
            need_bytes=need_bytes,
            budget_bytes=budget.limit_bytes,
            step_seconds=self.step_seconds(size) if self.step_seconds else None,
            settings=question.settings,
            evaluate_at=question.evaluate_at,
            evaluated=evaluated if evaluates and fault is None else None,
        )
        if fault is OVER_BUDGET:
            # What breaks a budget is memory outside PyTorch that its cap did not allow for, more each time.
            grown = replace(answer.measurement, non_pytorch_bytes=len(self.asked))
            answer = replace(answer, measurement=grown)
        return answer


@dataclass
class Evaluating:
    """A prober whose workload evaluates, up to a size that depends on the settings."""

    prober: Prober
    limit: Callable[[Settings], int]
    asked: list[Question] = field(default_factory=list)

    def probe(self, question: Question, budget: Budget, reserve_bytes: int) -> ProbeResult:
        """Answer at once."""
        self.asked.append(question)
        answer = replace(self.prober.probe(question, budget, reserve_bytes), evaluate_at=question.evaluate_at)
        size = question.batch_size if question.evaluate_at is None else question.evaluate_at
        if not answer.fits or not size or question.form not in (Form.SHORT, Form.LONG, Form.EVALUATE):
            return answer
        if size <= self.limit(plain(question.settings)):
            return replace(answer, measurement=replace(answer.measurement, evaluated=True, evaluated_batch=size))
        failed = result(size, fault=EVALUATION_FAILS)
        return replace(answer, outcome=failed.outcome, failure=failed.failure)


@dataclass(frozen=True)
class After:
    """A strategy that goes on from an earlier history."""

    finder: Strategy
    earlier: tuple[ProbeResult, ...]

    def ask(self, history: Sequence[ProbeResult]) -> Question | Stop:
        """Ask as if both were one."""
        return self.finder.ask((*self.earlier, *history))


def drive(
    strategy: Strategy, prober: Prober, budget: Budget = BUDGET, *, at_most: int = 200
) -> tuple[Stop, list[ProbeResult]]:
    """Ask, probe, repeat; return the stop and the history.

    Raises:
        AssertionError: the strategy went on for more than ``at_most`` probes.
    """
    history: list[ProbeResult] = []
    while True:
        reply = strategy.ask(tuple(history))
        if isinstance(reply, Stop):
            return reply, history
        assert len(history) < at_most, f"no end after {at_most} probes; next is {reply}"
        history.append(prober.probe(reply, budget, 0))
