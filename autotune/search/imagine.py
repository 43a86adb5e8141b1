"""What a probe that still runs will probably say, so that others can be asked for meanwhile. Pure.

Nothing that is imagined is ever evidence: it only decides which probes run ahead on workers that have nothing else to do.
Candidates are taken to be as fast as what was measured of their knobs makes expect, comparisons to find no difference,
and what is to be certified to be safe. Where nothing can be said there is no answer, and nothing runs ahead of it.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from math import exp

from autotune.model import (
    Cause,
    Comparison,
    Failure,
    Form,
    Measurement,
    Objective,
    Outcome,
    ProbeResult,
    Question,
    Reason,
)
from autotune.search.apart import Apart
from autotune.search.settings import SettingsFinder
from autotune.search.settings.rows import TRAINING, plain
from autotune.search.settings.view import View

Imagine = Callable[[Question, Sequence[ProbeResult]], ProbeResult | None]
_FITS_IF_RIGHT = frozenset({Reason.PREDICTED, Reason.CERTIFY, Reason.RECOMMEND, Reason.BASELINE, Reason.CORRECT})
"""Reasons of long probes at sizes that are believed to be safe."""
_PICKED = frozenset({Reason.CHANGE, Reason.SAMPLED})
"""Reasons of candidates that were picked because more is expected of them than of others ..."""
_CURSE = 0.6
"""... and which therefore keep less than that (the winner's curse), by so many deviations. In eight planted searches two
workers take 0.58 of the rounds of one with 0, and 0.55 with 0.6 to 1."""
_NEVER = datetime(2000, 1, 1, tzinfo=UTC)
"""When an imagined probe began."""
_CANDIDATE_FORMS = frozenset({Form.TIMED, Form.COMPARE})


def imagination(strategy: object) -> Imagine:
    """What to expect of the probes of this strategy; where it looks for settings, by what it knows of them."""
    finder = strategy
    while finder is not None and not isinstance(finder, SettingsFinder):
        finder = getattr(finder, "finder", None)  # strategies that wrap another call it so

    def imagine(question: Question, history: Sequence[ProbeResult]) -> ProbeResult | None:
        if question.trace_unit is not None or question.reason is Reason.RETRY or not history:
            return None
        if question.form is Form.LONG:
            return _long(question, history)
        if question.form is Form.SHORT:
            return _short(question, history)
        if question.form not in _CANDIDATE_FORMS or finder is None:
            return None
        training = [p for p in Apart.of(history).training if p.form is not Form.LOADING]
        return _candidate(View.of(finder.asked, training), question)

    return imagine


def still_to_come_s(history: Sequence[ProbeResult]) -> float:
    """Seconds until all of a history is known: those of its longest imagined probe, as they run side by side."""
    return max((probe.seconds for probe in history if probe.started_at == _NEVER), default=0.0)


def _long(question: Question, history: Sequence[ProbeResult]) -> ProbeResult | None:
    """Safe where it is to certify; out of memory where it is to refute."""
    if question.reason is Reason.REFUTE:
        return _answer(question, history[-1], Measurement(), Outcome.OUT_OF_MEMORY)
    if question.reason not in _FITS_IF_RIGHT:
        return None
    return _as_sizes_say(question, history)


def _short(question: Question, history: Sequence[ProbeResult]) -> ProbeResult | None:
    """As the memory of smaller sizes says, if that is a line in the batch."""
    if question.reason is Reason.REFUTE:
        return _answer(question, history[-1], Measurement(), Outcome.OUT_OF_MEMORY)
    expected = _as_sizes_say(question, history)
    held = expected.measurement.peak_device_bytes if expected else None
    if expected is None or held is None:
        return None
    if held <= expected.budget_bytes:
        return expected
    return _answer(question, history[-1], Measurement(), Outcome.OUT_OF_MEMORY)


def _as_sizes_say(question: Question, history: Sequence[ProbeResult]) -> ProbeResult | None:
    """That it fits, with memory and time on the line through two other sizes.

    With one size known, all memory but that of the parameters is taken to grow with the batch, and a step to take as long:
    small batches do not fill a device.
    """
    wanted = plain(question.settings)
    known = {p.batch_size: p for p in history if p.fits and p.form in TRAINING and plain(p.settings) == wanted}
    if not known:
        return None
    size = question.batch_size
    first, *others = sorted(known, key=lambda n: (abs(n - size), n))
    like = known[first]
    near, other = like.measurement, known[others[0]].measurement if others else None

    def factor(of: Callable[[Measurement], float | None], fixed: float) -> float:
        at = of(near)
        if not at:
            return 1.0
        beside, place = (of(other), others[0]) if other is not None else (min(fixed, at), 0)
        slope = 0.0 if beside is None else (at - beside) / (first - place)
        return max(0.0, at + slope * (size - first)) / at

    memory = factor(lambda seen: seen.peak_device_bytes, _fixed_bytes(near))
    seconds = factor(lambda seen: seen.median_step_seconds, near.median_step_seconds or 0.0)
    micro_batches = question.settings.accumulate / like.settings.accumulate
    evaluates = any(p.measurement.evaluated for p in history)
    return _answer(question, like, _scaled(near, question, memory, seconds * micro_batches, evaluates=evaluates))


def _fixed_bytes(seen: Measurement) -> int:
    parts = seen.composition
    known = (parts.parameters_bytes, parts.gradients_bytes, parts.optimizer_bytes, parts.buffers_bytes)
    return sum(part or 0 for part in known)


def _candidate(view: View, question: Question) -> ProbeResult | None:
    """As the settings search expects it, once it has something to compare with."""
    if not view.opened:
        return None
    like = view.opening.largest_measured() or view.opening.probes[-1]
    if question.form is Form.COMPARE:
        compared = Measurement(
            steps_asked=Form.COMPARE.steps, steps_executed=Form.COMPARE.steps, comparison=Comparison()
        )
        return _answer(question, like, compared)
    row, size = view.table.row(question.settings), question.batch_size
    best = view.goal.best(row)
    expected = view.expect(plain(question.settings))
    mean = expected.mean - (_CURSE * expected.deviation if question.reason in _PICKED else 0.0)
    throughput = view.asked.objective is Objective.THROUGHPUT
    memory = size / like.batch_size
    step_s = _step_s(like)
    if throughput:
        gain = view.saturation.gain(view.reference, size)
        if best is not None:  # measured at another size
            mean, gain = best.value, view.saturation_of(row).gain(best.size, size)
        step_s = size * question.settings.accumulate / exp(mean + gain)
    elif view.asked.objective is Objective.MEMORY:
        held = like.measurement.peak_reserved_bytes or like.measurement.peak_allocated_bytes or 1
        memory = exp(-mean) / held
    else:
        limit = view.limit(view.opening)
        memory *= limit / exp(mean) if limit else 1.0
    seconds = step_s / _step_s(like) if _step_s(like) else 1.0
    return _answer(question, like, _scaled(like.measurement, question, memory, seconds, evaluates=False))


def _step_s(probe: ProbeResult) -> float:
    return probe.measurement.median_step_seconds or 0.0


def _scaled(like: Measurement, question: Question, memory: float, seconds: float, *, evaluates: bool) -> Measurement:
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


def _answer(
    question: Question, like: ProbeResult, measurement: Measurement, outcome: Outcome = Outcome.FITS
) -> ProbeResult:
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
        started_at=_NEVER,
        seconds=like.seconds,
        settings=question.settings,
        evaluate_at=question.evaluate_at,
    )
