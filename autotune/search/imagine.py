"""What a probe that still runs will probably say, so that others can be asked for meanwhile. Pure.

Nothing that is imagined is ever evidence: it only decides which probes run ahead on workers that have nothing else to do.
Candidates are taken to be as fast as what was measured of their knobs makes expect, comparisons to find no difference,
and what is to be certified to be safe. Where nothing can be said there is no answer, and nothing runs ahead of it.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import exp
from typing import TypeVar

from autotune.model import Comparison, Form, Measurement, Objective, Outcome, ProbeResult, Question, Reason
from autotune.search.apart import Apart, plain
from autotune.search.batch import BatchFinder
from autotune.search.guide import recorded
from autotune.search.imagined import NEVER, NOTHING, STEP_S, Imagined, answer, scaled
from autotune.search.settings import SettingsFinder
from autotune.search.settings.room import expected_limit
from autotune.search.settings.rows import TRAINING
from autotune.search.settings.view import View

Imagine = Callable[[Question, Sequence[ProbeResult]], Imagined | None]
T = TypeVar("T")
_FITS_IF_RIGHT = frozenset({Reason.PREDICTED, Reason.CERTIFY, Reason.RECOMMEND, Reason.BASELINE, Reason.CORRECT})
"""Reasons of long probes at sizes that are believed to be safe."""
_PICKED = frozenset({Reason.CHANGE, Reason.SAMPLED})
"""Reasons of candidates that were picked because more is expected of them than of others ..."""
_CURSE = 0.6
"""... and which therefore keep less than that (the winner's curse), by so many deviations. In eight planted searches two
workers take 0.58 of the rounds of one with 0, and 0.55 with 0.6 to 1."""
_CANDIDATE_FORMS = frozenset({Form.TIMED, Form.COMPARE})
_SAMPLES = 8
"""That are taken to be safe before anything is known: as many as a comparison takes at most."""


def imagination(strategy: object) -> Imagine:
    """What to expect of the probes of this strategy; where it looks for settings, by what it knows of them."""
    finder = _within(strategy, SettingsFinder)
    sizes = _within(strategy, BatchFinder)
    varies = sizes is not None and sizes.varies

    def imagine(question: Question, history: Sequence[ProbeResult]) -> Imagined | None:
        if question.trace_unit is not None:
            return _recording(question, history)
        expected = expect(question, history)
        return None if expected is None else Imagined((expected,))

    def expect(question: Question, history: Sequence[ProbeResult]) -> ProbeResult | None:
        if question.reason is Reason.RETRY or not history:
            return None
        view = None
        if finder is not None:
            training = [p for p in Apart.of(history).training if p.form is not Form.LOADING]
            view = View.of(finder.asked, training)
        found = says(question, history, view)
        seconds = view.spending.expected_s(question) if view is not None else history[-1].seconds
        return None if found is None else replace(found, seconds=seconds)

    def says(question: Question, history: Sequence[ProbeResult], view: View | None) -> ProbeResult | None:
        if question.form is Form.LONG:
            return _long(question, history, view, varies=varies)
        if question.form is Form.SHORT:
            return _short(question, history, view)
        if question.form not in _CANDIDATE_FORMS or view is None:
            return None
        return _candidate(view, question)

    return imagine


def still_to_come_s(history: Sequence[ProbeResult]) -> float:
    """Seconds until all of a history is known: those of its longest imagined probe, as they run side by side."""
    return max((probe.seconds for probe in history if probe.started_at == NEVER), default=0.0)


def _within(strategy: object, kind: type[T]) -> T | None:
    """The strategy of this kind that is wrapped; all that wrap another call it ``finder``."""
    while strategy is not None and not isinstance(strategy, kind):
        strategy = getattr(strategy, "finder", None)
    return strategy


def _recording(question: Question, history: Sequence[ProbeResult]) -> Imagined | None:
    """As the recording of other settings; the first of all as if some size were safe then."""
    unit = question.trace_unit or 1
    most = question.trace_largest // unit * unit
    known = next((p for p in reversed(history) if p.trace is not None), None)
    if known is not None:
        alike = replace(known, settings=question.settings, reason=question.reason, started_at=NEVER)
        return Imagined((alike,), lambda later: _has_own_size(later) or later.batch_size == most)
    if any(p.form in TRAINING for p in history):
        return None  # a second attempt: nothing is known of what the first one met
    certifying = replace(
        question, batch_size=min(most, _SAMPLES * unit), form=Form.LONG, reason=Reason.BASELINE, trace_unit=None
    )
    results = tuple(answer(asked, NOTHING, scaled(NOTHING.measurement, asked)) for asked in (question, certifying))
    return Imagined(results, lambda later: later.form is Form.COMPARE)


def _has_own_size(question: Question) -> bool:
    """Whether its size does not follow from the limit: comparisons are of a few samples, and smaller batches to recommend
    shares of what was timed before."""
    return question.form is Form.COMPARE or question.reason is Reason.RECOMMEND


def _long(question: Question, history: Sequence[ProbeResult], view: View | None, *, varies: bool) -> ProbeResult | None:
    """Safe where it is to certify; out of memory where it is to refute."""
    if question.reason is Reason.REFUTE:
        return answer(question, history[-1], Measurement(), Outcome.OUT_OF_MEMORY)
    if question.reason not in _FITS_IF_RIGHT:
        return None
    expected = _as_sizes_say(question, history, view)
    of_these = [p for p in history if p.trace is not None and plain(p.settings) == plain(question.settings)]
    foretold = recorded(of_these, question.settings.allocator, varies=varies)
    if expected is None or foretold is None:
        return expected
    # A forecast is corrected where probes near the limit hold more or less than it said.
    peak_bytes = foretold.expect(question.batch_size).allocated_bytes
    return replace(expected, measurement=replace(expected.measurement, peak_allocated_bytes=peak_bytes))


def _short(question: Question, history: Sequence[ProbeResult], view: View | None) -> ProbeResult | None:
    """As the memory of smaller sizes says, if that is a line in the batch."""
    if question.reason is Reason.REFUTE:
        return answer(question, history[-1], Measurement(), Outcome.OUT_OF_MEMORY)
    expected = _as_sizes_say(question, history, view)
    held = expected.measurement.peak_device_bytes if expected else None
    if expected is None or held is None:
        return None
    if held <= expected.budget_bytes:
        return expected
    return answer(question, history[-1], Measurement(), Outcome.OUT_OF_MEMORY)


def _as_sizes_say(question: Question, history: Sequence[ProbeResult], view: View | None) -> ProbeResult | None:
    """That it fits, with memory and time on the line through two other sizes.

    With one size known, all memory but that of the parameters is taken to grow with the batch, and a step to take as long:
    small batches do not fill a device. Of settings other than the user's own throughput is known to grow as theirs does.
    """
    wanted = plain(question.settings)
    fitting = [p for p in history if p.fits and p.form in TRAINING and plain(p.settings) == wanted]
    # A recording has no step times, and counts only where nothing else does.
    known = {p.batch_size: p for p in fitting if p.reason is not Reason.TRACE} or {p.batch_size: p for p in fitting}
    if not known:
        return None
    size = question.batch_size
    first, *others = sorted(known, key=lambda n: (abs(n - size), n))
    like = known[first]
    near, other = like.measurement, known[others[0]].measurement if others else None
    if like.reason is Reason.TRACE:
        near = replace(near, step_seconds=(STEP_S,))

    def factor(of: Callable[[Measurement], float | None], fixed: float) -> float:
        at = of(near)
        if not at:
            return 1.0
        beside, place = (of(other), others[0]) if other is not None else (min(fixed, at), 0)
        slope = 0.0 if beside is None else (at - beside) / (first - place)
        return max(0.0, at + slope * (size - first)) / at

    memory = factor(lambda seen: seen.peak_device_bytes, _fixed_bytes(near))
    if view is not None and view.opened and wanted != view.origin:
        gain = view.saturation_of(view.table.row(wanted)).gain(first, size)
        seconds = size / first / exp(gain)
    else:
        seconds = factor(lambda seen: seen.median_step_seconds, near.median_step_seconds or 0.0)
    micro_batches = question.settings.accumulate / like.settings.accumulate
    evaluates = any(p.measurement.evaluated for p in history)
    return answer(question, like, scaled(near, question, memory, seconds * micro_batches, evaluates=evaluates))


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
        return answer(question, like, compared)
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
        limit = expected_limit(view.opening)
        memory *= limit / exp(mean) if limit else 1.0
    seconds = step_s / _step_s(like) if _step_s(like) else 1.0
    return answer(question, like, scaled(like.measurement, question, memory, seconds))


def _step_s(probe: ProbeResult) -> float:
    return probe.measurement.median_step_seconds or 0.0
