"""What an imagined probe looks like: as one that ran, made larger or smaller. Pure."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from autotune.model import Cause, Failure, Form, Measurement, Outcome, ProbeResult, Question, Reason

STEP_S = 1.0
"""Of a step where none was timed yet. With one size imagined, how long its steps take decides nothing."""
NEVER = datetime(2000, 1, 1, tzinfo=UTC)
"""When an imagined probe began."""


def _always(question: Question) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Imagined:
    """What a probe will probably say."""

    results: tuple[ProbeResult, ...]
    """Of the probe, and perhaps of those right after it."""
    holds: Callable[[Question], bool] = _always
    """Whether a question that these lead to will be asked just so. Where the course of the search is foreseen and the limit
    is not, most will be asked at other sizes."""


def scaled(
    like: Measurement, question: Question, memory: float = 1.0, seconds: float = 1.0, *, evaluates: bool = False
) -> Measurement:
    """A measurement of another probe, its memory and the times of its steps multiplied."""
    form = question.form
    usual = (like.median_step_seconds or 0.0) * seconds
    return replace(
        like,
        steps_asked=form.steps,
        steps_executed=form.steps,
        observed_batch=question.batch_size if like.observed_batch is not None else None,
        step_seconds=(usual,) * (form.steps - form.warm_up) if usual else (),
        phases=tuple(
            replace(
                one,
                peak_allocated_bytes=int(one.peak_allocated_bytes * memory),
                peak_reserved_bytes=_times(one.peak_reserved_bytes, memory),
            )
            for one in like.phases
        ),
        peak_allocated_bytes=_times(like.peak_allocated_bytes, memory),
        peak_reserved_bytes=_times(like.peak_reserved_bytes, memory),
        peak_device_bytes=_times(like.peak_device_bytes, memory),
        retries_per_step=(),
        allocated_after_step=(),
        evaluated=evaluates,
        evaluated_batch=question.batch_size if evaluates else None,
        first_step_seconds=usual or None,
        comparison=None,
    )


def _times(value: int | None, factor: float) -> int | None:
    return None if value is None else int(value * factor)


def answer(
    question: Question, like: ProbeResult, measurement: Measurement, outcome: Outcome = Outcome.FITS
) -> ProbeResult:
    """What the probe says; budget and launcher are those of another one."""
    failure = None
    if outcome is not Outcome.FITS:
        failure = Failure(cause=Cause.DEVICE_MEMORY, message="imagined")
    return ProbeResult(
        batch_size=question.batch_size,
        form=question.form,
        reason=question.reason,
        outcome=outcome,
        failure=failure,
        measurement=measurement,
        budget_bytes=like.budget_bytes,
        launcher=like.launcher,
        started_at=NEVER,
        seconds=like.seconds,
        settings=question.settings,
        evaluate_at=question.evaluate_at,
    )


NOTHING = ProbeResult(
    batch_size=1,
    form=Form.SHORT,
    reason=Reason.START,
    outcome=Outcome.FITS,
    failure=None,
    measurement=Measurement(step_seconds=(STEP_S,), peak_allocated_bytes=1, peak_reserved_bytes=1, peak_device_bytes=1),
    budget_bytes=1,
    launcher="imagined",
    started_at=NEVER,
    seconds=1.0,
)
"""What to make the first probes of a search from: it fits, and holds next to no memory."""
