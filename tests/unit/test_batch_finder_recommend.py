"""Which size the batch finder recommends."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from autotune.model import Answer, Form, ProbeResult, Question, Reason, Stop
from autotune.search.batch import BatchFinder
from tests.fakes import BROKEN_MACHINE, BUDGET, BUG, OUT_OF_MEMORY, REJECTED, FakeProber, Fault, drive, result


def recommended(
    step_seconds: Callable[[int], float],
    limit: int,
    *,
    unit: int = 1,
    fault: Callable[[int, Form, int], Fault | None] = lambda *_: None,
) -> tuple[Answer, list[ProbeResult]]:
    prober = FakeProber(step_seconds=step_seconds, fault=fault)
    stop, history = drive(BatchFinder(multiple_of=unit), prober, replace(BUDGET, limit_bytes=limit))
    assert stop.answer is not None
    assert any(p.batch_size == stop.answer.recommended_batch and p.form is Form.LONG and p.fits for p in history)
    return stop.answer, history


def settled(finder: BatchFinder, history: list[ProbeResult]) -> int:
    stop = finder.ask(history)
    assert isinstance(stop, Stop) and stop.answer is not None, stop
    return stop.answer.recommended_batch


def slower_above_48(size: int) -> float:
    """Seconds of a step with a fixed cost, and a cost that grows faster than the batch above 48."""
    return 10 + size + 0.05 * max(0, size - 48) ** 2


@pytest.mark.parametrize("unit", [1, 4, 8, 16])
def test_c32_the_peak_of_throughput_is_recommended_and_the_largest_batch_kept_apart(unit: int) -> None:
    answer, history = recommended(slower_above_48, 496, unit=unit)
    assert answer.max_batch == 496
    assert abs(answer.recommended_batch - 48) <= max(unit, 4)
    assert [p.reason for p in history].count(Reason.RECOMMEND) <= 6


def test_a_plateau_is_recommended_at_its_smallest_size_that_was_tried() -> None:
    answer, history = recommended(lambda size: max(64, size), 1000)
    assert (answer.max_batch, answer.recommended_batch) == (1000, 64)
    assert [(p.batch_size, p.form) for p in history if p.reason is Reason.RECOMMEND] == [(64, Form.LONG)]


def test_the_largest_batch_is_recommended_if_it_is_clearly_the_fastest() -> None:
    answer, history = recommended(lambda size: 1.0, 100)
    assert answer.recommended_batch == 100
    assert Reason.RECOMMEND not in [p.reason for p in history]


def test_the_largest_batch_is_recommended_where_nothing_was_timed() -> None:
    stop, _ = drive(BatchFinder(), FakeProber(), replace(BUDGET, limit_bytes=100))
    assert stop.answer is not None and stop.answer.recommended_batch == 100


def test_a_search_told_not_to_recommend_asks_nothing_for_it() -> None:
    prober = FakeProber(step_seconds=slower_above_48)
    stop, history = drive(BatchFinder(recommend=False), prober, replace(BUDGET, limit_bytes=496))
    assert stop.answer is not None and stop.answer.recommended_batch == 496
    assert Reason.RECOMMEND not in [p.reason for p in history]


@pytest.mark.parametrize("fault", [OUT_OF_MEMORY, REJECTED, BUG, BROKEN_MACHINE], ids=lambda fault: fault.cause)
def test_a_candidate_whose_long_probe_fails_gives_way_to_the_next_and_is_reported(fault: Fault) -> None:
    def long_fails_at_64(size: int, form: Form, _: int) -> Fault | None:
        return fault if (size, form) == (64, Form.LONG) else None

    answer, _ = recommended(lambda size: max(64, size), 1000, fault=long_fails_at_64)
    assert (answer.max_batch, answer.recommended_batch, answer.holes) == (1000, 256, (64,))


@pytest.mark.parametrize("fault", [OUT_OF_MEMORY, REJECTED], ids=lambda fault: fault.cause)
def test_no_more_than_two_candidates_are_certified(fault: Fault) -> None:
    def long_fails_below_1000(size: int, form: Form, _: int) -> Fault | None:
        return fault if form is Form.LONG and size < 1000 else None

    answer, history = recommended(lambda size: max(64, size), 1000, fault=long_fails_below_1000)
    assert (answer.max_batch, answer.recommended_batch) == (1000, 1000)
    assert [p.batch_size for p in history if p.reason is Reason.RECOMMEND] == [64, 256]
    assert history[-1].reason is Reason.RECOMMEND


def test_the_long_figure_of_a_candidate_replaces_its_short_one() -> None:
    """64 looked as fast as 128 in the short form and is 10 % slower in the long one."""
    history = [
        result(64, step_seconds=64.0),
        result(128, step_seconds=128.0),
        result(128, Form.LONG, step_seconds=128.0),
    ]
    finder = BatchFinder(max_batch=128)
    assert finder.ask(history) == Question(batch_size=64, form=Form.LONG, reason=Reason.RECOMMEND)
    history.append(result(64, Form.LONG, reason=Reason.RECOMMEND, step_seconds=71.0))
    assert settled(finder, history) == 128


def test_a_certified_candidate_that_turns_out_faster_is_not_litigated_again() -> None:
    history = [
        result(64, step_seconds=64.0),
        result(128, Form.LONG, step_seconds=128.0),
        result(64, Form.LONG, reason=Reason.RECOMMEND, step_seconds=50.0),
    ]
    assert settled(BatchFinder(max_batch=128), history) == 64


@pytest.mark.parametrize(("slower_by", "expected"), [(0.019, 64), (0.021, 128)])
def test_two_percent_of_throughput_are_given_for_a_smaller_batch(slower_by: float, expected: int) -> None:
    history = [
        result(64, Form.LONG, step_seconds=64 / (1 - slower_by)),
        result(128, Form.LONG, step_seconds=128.0),
    ]
    assert settled(BatchFinder(max_batch=128), history) == expected


@pytest.mark.parametrize(("slower_by", "asked"), [(0.04, None), (0.06, 96)])
def test_a_gap_is_searched_for_a_peak_only_if_throughput_clearly_falls_above_it(
    slower_by: float, asked: int | None
) -> None:
    history = [
        result(64, Form.LONG, step_seconds=64.0),
        result(128, Form.LONG, step_seconds=128 / (1 - slower_by)),
    ]
    reply = BatchFinder(max_batch=128).ask(history)
    assert (
        reply == Question(batch_size=96, form=Form.SHORT, reason=Reason.RECOMMEND) if asked else isinstance(reply, Stop)
    )


def test_narrow_gaps_beside_the_peak_are_left_alone() -> None:
    history = [
        result(60, step_seconds=70.0),
        result(64, Form.LONG, step_seconds=64.0),
        result(66, Form.LONG, step_seconds=90.0),
    ]
    assert settled(BatchFinder(max_batch=66), history) == 64


def test_a_size_above_the_answer_is_not_recommended_however_fast() -> None:
    """32 fits in the short form only; the long form fails from 9 on."""
    history = [
        result(8, Form.LONG, step_seconds=8.0),
        result(9, Form.LONG, OUT_OF_MEMORY),
        result(16, step_seconds=16.0),
        result(16, Form.LONG, OUT_OF_MEMORY),
        result(32, step_seconds=1.0),
    ]
    assert settled(BatchFinder(max_batch=32), history) == 8
