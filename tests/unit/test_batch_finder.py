"""The batch finder against brute force: only memory, the bounds and the two forms of a probe."""

from collections.abc import Callable
from dataclasses import replace
from math import log2

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from autotune.errors import UsageError
from autotune.model import Form, Measurement, ProbeResult, Question, Reason, Stop
from autotune.search.batch import LARGEST_SIZE, BatchFinder
from tests.fakes import BUDGET, HANGS, OUT_OF_MEMORY, FakeProber, drive, result


def sizes(history: list[ProbeResult]) -> list[int]:
    return [probe.batch_size for probe in history]


def reasons(history: list[ProbeResult]) -> list[Reason]:
    return [probe.reason for probe in history]


@settings(deadline=None, derandomize=True)
@given(
    limit=st.integers(0, 5000),
    unit=st.sampled_from([1, 2, 3, 8, 64]),
    start=st.none() | st.integers(1, 6000),
    max_batch=st.none() | st.integers(64, 6000),
    data_set=st.none() | st.integers(64, 6000),
    per_sample_bytes=st.sampled_from([1, 7, 1000]),
    fixed_bytes=st.sampled_from([0, 5, 10**6]),
)
@example(limit=10, unit=1, start=4096, max_batch=None, data_set=None, per_sample_bytes=1, fixed_bytes=0)
@example(limit=100, unit=8, start=None, max_batch=100, data_set=100, per_sample_bytes=1, fixed_bytes=0)
def test_the_answer_is_that_of_brute_force_within_the_promised_number_of_probes(
    limit: int,
    unit: int,
    start: int | None,
    max_batch: int | None,
    data_set: int | None,
    per_sample_bytes: int,
    fixed_bytes: int,
) -> None:
    finder = BatchFinder(
        multiple_of=unit, start_batch=start, max_batch=max_batch, data_set_size=data_set, recommend=False
    )
    budget = replace(BUDGET, limit_bytes=fixed_bytes + per_sample_bytes * limit)
    prober = FakeProber(fixed_bytes=fixed_bytes, per_sample_bytes=per_sample_bytes)
    bounds = [n for n in (max_batch, data_set) if n is not None]
    expected = min([limit, *bounds]) // unit * unit

    stop, history = drive(finder, prober, budget)

    if expected == 0:
        assert stop.answer is None
        assert sizes(history)[-1] == unit, "the smallest size has to be executed before giving up"
        assert len(history) <= log2(max(start or 1, unit) / unit) + 2
        return
    assert stop.answer is not None
    assert stop.answer.max_batch == expected
    assert stop.answer.recommended_batch == expected
    assert stop.answer.step == unit
    assert stop.answer.holes == ()
    next_legal = expected + unit
    if bounds and next_legal > min(bounds):
        assert stop.answer.refuted_at is None
        assert stop.answer.limited_by == ("data_set" if data_set == min(bounds) else "max_batch")
    else:
        assert stop.answer.refuted_at == next_legal
        assert stop.answer.limited_by == "device_memory"
    assert history[-1].form is Form.LONG
    assert all(size % unit == 0 and size <= min([*bounds, LARGEST_SIZE]) for size in sizes(history))
    assert len(history) <= 2 * log2(max(expected, start or 0) / unit) + 6


@settings(deadline=None, derandomize=True)
@given(
    limit=st.integers(1, 3000),
    lost_in_long_form=st.integers(0, 3000),
    start=st.none() | st.integers(1, 3000),
)
def test_the_answer_is_the_limit_of_the_long_form_where_that_is_smaller(
    limit: int, lost_in_long_form: int, start: int | None
) -> None:
    prober = FakeProber(long_extra_bytes=lost_in_long_form)
    expected = limit - lost_in_long_form

    stop, history = drive(BatchFinder(start_batch=start), prober, replace(BUDGET, limit_bytes=limit))

    if expected < 1:
        assert stop.answer is None
        return
    assert stop.answer is not None
    assert (stop.answer.max_batch, stop.answer.refuted_at) == (expected, expected + 1)
    assert len(history) <= 5 * log2(max(limit, start or 1)) + 6


def test_a_search_without_a_start_begins_with_the_smallest_size() -> None:
    assert BatchFinder(multiple_of=8).ask([]) == Question(batch_size=8, form=Form.SHORT, reason=Reason.START)


@pytest.mark.parametrize(("start", "first"), [(37, 32), (5, 8), (8, 8), (4000, 96)])
def test_the_start_is_rounded_to_a_legal_size_within_the_bounds(start: int, first: int) -> None:
    asked = BatchFinder(multiple_of=8, start_batch=start, max_batch=100).ask([])
    assert isinstance(asked, Question) and asked.batch_size == first


def test_sizes_quadruple_until_the_expected_limit_is_in_reach_and_end_one_step_beyond_it() -> None:
    _, history = drive(BatchFinder(recommend=False), FakeProber(), replace(BUDGET, limit_bytes=500))
    assert sizes(history) == [1, 4, 16, 64, 256, 500, 501, 500]
    assert reasons(history) == [
        Reason.START,
        *[Reason.GROW] * 4,
        Reason.PREDICTED,
        Reason.REFUTE,
        Reason.CERTIFY,
    ]


def test_growth_doubles_where_no_memory_was_measured() -> None:
    unmeasured = replace(result(1, budget_bytes=1000), measurement=Measurement())
    asked = BatchFinder().ask([unmeasured])
    assert asked == Question(batch_size=2, form=Form.SHORT, reason=Reason.GROW)


def test_growth_ends_even_if_no_batch_ever_fails() -> None:
    stop, history = drive(BatchFinder(recommend=False), FakeProber(per_sample_bytes=0, fixed_bytes=1))
    assert stop.answer is not None
    assert (stop.answer.max_batch, stop.answer.limited_by) == (LARGEST_SIZE, "max_batch")
    assert len(history) <= 14


def test_a_long_probe_that_fits_between_the_forms_both_narrows_and_certifies() -> None:
    """Short fits up to 28, long up to 27: one contradiction, then only long probes."""

    prober = FakeProber(
        fault=lambda size, form, _: OUT_OF_MEMORY if size > (28 if form is Form.SHORT else 27) else None
    )
    stop, history = drive(BatchFinder(recommend=False), prober)
    assert stop.answer is not None
    assert (stop.answer.max_batch, stop.answer.refuted_at) == (27, 28)
    contradiction = next(i for i, p in enumerate(history) if p.form is Form.LONG)
    assert (history[contradiction].batch_size, history[contradiction].fits) == (28, False)
    assert all(p.form is Form.LONG for p in history[contradiction:])


def test_once_the_short_form_misled_low_ground_is_certified_before_anything_is_built_on_it() -> None:
    history = [result(16), result(24), result(28, fault=OUT_OF_MEMORY), result(24, Form.LONG, OUT_OF_MEMORY)]
    finder = BatchFinder(recommend=False)
    assert finder.ask(history) == Question(batch_size=16, form=Form.LONG, reason=Reason.CERTIFY)
    history.append(result(16, Form.LONG))
    assert finder.ask(history) == Question(batch_size=20, form=Form.LONG, reason=Reason.BISECT)


@pytest.mark.parametrize("more", [1, 12, 60])
def test_what_the_long_form_needs_more_is_learned_from_one_that_fits(more: int) -> None:
    """A constant more: after the contradiction firm ground, the limit, and the next size, and no halving between them."""
    prober = FakeProber(fixed_bytes=400, per_sample_bytes=5, long_extra_bytes=more)
    stop, history = drive(BatchFinder(recommend=False), prober)
    limit = (BUDGET.limit_bytes - 400 - more) // 5
    assert stop.answer is not None
    assert (stop.answer.max_batch, stop.answer.refuted_at) == (limit, limit + 1)
    first = next(i for i, p in enumerate(history) if p.form is Form.LONG)
    assert not history[first].fits
    assert len(history) - first <= 4


def test_a_long_form_that_fails_without_needing_more_is_found_by_halving() -> None:
    """Nothing that was measured tells why: a model that says 999, 998, … would be asked for ever."""
    prober = FakeProber(fault=lambda size, form, _: OUT_OF_MEMORY if form is Form.LONG and size > 300 else None)
    stop, history = drive(BatchFinder(recommend=False), prober)
    assert stop.answer is not None
    assert (stop.answer.max_batch, stop.answer.refuted_at) == (300, 301)
    assert sum(p.form is Form.LONG for p in history) <= 14


def test_a_hanging_start_is_followed_by_the_smallest_size_instead_of_a_dozen_deadlines() -> None:
    _, history = drive(BatchFinder(start_batch=4096), FakeProber(fault=lambda *_: HANGS))
    assert sizes(history) == [4096, 1]


def test_the_stop_says_in_a_sentence_with_numbers_what_bounds_the_answer() -> None:
    stop, history = drive(BatchFinder(recommend=False), FakeProber(), replace(BUDGET, limit_bytes=37))
    assert stop.reason == f"Batch 37 is certified and 38 is refuted (device_memory), after {len(history)} probes."
    stop, _ = drive(BatchFinder(recommend=False, max_batch=4), FakeProber())
    assert stop.reason == "Batch 4 is certified and no larger one is allowed, after 3 probes."
    stop, _ = drive(BatchFinder(recommend=False, data_set_size=4), FakeProber())
    assert stop.reason == "Batch 4 is certified and the data set has no more samples for a larger one, after 3 probes."
    stop, _ = drive(BatchFinder(), FakeProber(fixed_bytes=2000))
    assert stop.reason == "Not even the smallest size fits: batch 1 failed in its short form (device_memory)."


def test_probes_outside_the_bounds_are_ignored() -> None:
    finder = BatchFinder(multiple_of=4, max_batch=8, recommend=False)
    foreign = [result(3), result(64), result(64, Form.LONG), result(6, fault=OUT_OF_MEMORY)]
    assert finder.ask(foreign) == finder.ask([])
    known = [*foreign, result(8), result(8, Form.LONG)]
    stop = finder.ask(known)
    assert isinstance(stop, Stop) and stop.answer is not None and stop.answer.max_batch == 8


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: BatchFinder(multiple_of=0), "--multiple-of is 0"),
        (lambda: BatchFinder(start_batch=0), "--start-batch is 0"),
        (lambda: BatchFinder(multiple_of=8, max_batch=4), "no multiple of 8 is at most --max-batch 4"),
        (lambda: BatchFinder(multiple_of=8, data_set_size=5), "5 samples, fewer than the smallest batch of 8"),
    ],
)
def test_bounds_that_allow_no_size_are_refused_at_once(build: Callable[[], BatchFinder], message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        build()
    assert caught.value.hint
