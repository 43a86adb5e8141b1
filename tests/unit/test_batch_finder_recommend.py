"""Which size the batch finder recommends, and what finding it costs."""

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from autotune.model import Answer, Form, ProbeResult, Question, Reason, Settings, Stop
from autotune.search.allocators import BestAllocator
from autotune.search.batch import BatchFinder
from tests.fakes import BROKEN_MACHINE, BUDGET, BUG, OUT_OF_MEMORY, REJECTED, After, FakeProber, Fault, drive, result


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


def after_recording(limit: int, step_seconds: Callable[[int], float], unit: int = 1) -> After:
    """The limit was foretold and certified at once, the next size refuted; only the limit was timed."""
    earlier = (
        result(2 * unit, reason=Reason.TRACE),
        result(limit, Form.LONG, reason=Reason.PREDICTED, step_seconds=step_seconds(limit)),
        result(limit + unit, Form.LONG, OUT_OF_MEMORY, reason=Reason.REFUTE),
    )
    return After(BatchFinder(trace=True, multiple_of=unit), earlier)


def recommended_after_recording(
    limit: int,
    step_seconds: Callable[[int], float],
    *,
    unit: int = 1,
    fault: Callable[[int, Form, int], Fault | None] = lambda *_: None,
) -> tuple[Answer, list[ProbeResult]]:
    """Also returns what was asked for the recommendation, which is all that is left to ask."""
    prober = FakeProber(step_seconds=step_seconds, fault=fault)
    search = after_recording(limit, step_seconds, unit)
    stop, history = drive(search, prober, replace(BUDGET, limit_bytes=limit))
    assert stop.answer is not None and stop.answer.max_batch == limit
    assert any(p.batch_size == stop.answer.recommended_batch and p.form is Form.LONG and p.fits for p in history) or (
        stop.answer.recommended_batch == limit
    )
    assert all(p.reason is Reason.RECOMMEND for p in history)
    return stop.answer, history


def asked(history: list[ProbeResult]) -> list[tuple[int, Form]]:
    """Size and form of the probes that were spent on the recommendation."""
    return [(p.batch_size, p.form) for p in history if p.reason is Reason.RECOMMEND]


def full_from(size: int) -> Callable[[int], float]:
    """Step times of a device that is busy from this batch size on: smaller ones take as long."""
    return lambda batch: float(max(size, batch))


def noisy(step_seconds: Callable[[int], float], share: float, seed: int) -> Callable[[int], float]:
    """The same times, each off by up to this share."""
    return lambda size: step_seconds(size) * (1 + share * Random(f"{seed} {size}").uniform(-1, 1))


def throughput(step_seconds: Callable[[int], float], size: int, limit: int) -> float:
    """As a share of the best up to the limit."""
    return size / step_seconds(size) / max(n / step_seconds(n) for n in range(1, limit + 1))


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
    assert asked(history) == [(64, Form.LONG)]


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

    answer, history = recommended(lambda size: max(16, size), 1000, fault=long_fails_below_1000)
    assert (answer.max_batch, answer.recommended_batch) == (1000, 1000)
    assert [p.batch_size for p in history if p.reason is Reason.RECOMMEND] == [16, 64], "256 would be as fast"
    assert history[-1].reason is Reason.RECOMMEND


def test_the_long_figure_of_a_candidate_replaces_its_short_one() -> None:
    """64 looked as fast as 128 in the short form and is 10 % slower in the long one."""
    history = [
        result(32, step_seconds=64.0),
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
        result(32, step_seconds=64.0),
        result(64, step_seconds=64.0),
        result(128, Form.LONG, step_seconds=128.0),
        result(64, Form.LONG, reason=Reason.RECOMMEND, step_seconds=50.0),
    ]
    assert settled(BatchFinder(max_batch=128), history) == 64


@pytest.mark.parametrize(("slower_by", "expected"), [(0.019, 64), (0.021, 128)])
def test_two_percent_of_throughput_are_given_for_a_smaller_batch(slower_by: float, expected: int) -> None:
    history = [
        result(32, step_seconds=70.0),
        result(64, Form.LONG, step_seconds=64 / (1 - slower_by)),
        result(128, Form.LONG, step_seconds=128.0),
    ]
    assert settled(BatchFinder(max_batch=128), history) == expected


@pytest.mark.parametrize(("slower_by", "middle"), [(0.04, None), (0.06, 90)])
def test_a_gap_is_searched_for_a_peak_only_if_throughput_clearly_falls_above_it(
    slower_by: float, middle: int | None
) -> None:
    history = [
        result(32, step_seconds=64.0),
        result(64, Form.LONG, step_seconds=64.0),
        result(128, Form.LONG, step_seconds=128 / (1 - slower_by)),
    ]
    reply = BatchFinder(max_batch=128).ask(history)
    assert (
        reply == Question(batch_size=middle, form=Form.SHORT, reason=Reason.RECOMMEND)
        if middle
        else isinstance(reply, Stop)
    )


def test_the_gap_searched_for_a_peak_is_the_wider_one_by_ratio_less_what_cannot_be_faster() -> None:
    """Steps of 10 samples take 33 s, so only sizes from 34 on can beat 100; that is a factor of 2.9, above it is 2."""
    history = [
        result(10, step_seconds=33.3),
        result(100, Form.LONG, step_seconds=100.0),
        result(200, Form.LONG, step_seconds=250.0),
    ]
    assert BatchFinder(max_batch=200).ask(history) == Question(batch_size=58, form=Form.SHORT, reason=Reason.RECOMMEND)


def test_narrow_gaps_beside_the_peak_are_left_alone() -> None:
    history = [
        result(600, step_seconds=700.0),
        result(700, Form.LONG, step_seconds=700.0),
        result(800, Form.LONG, step_seconds=1000.0),
    ]
    assert settled(BatchFinder(max_batch=800), history) == 700


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_larger_size_whose_fastest_step_is_as_fast_shows_no_peak(accumulate: int) -> None:
    settings = Settings(accumulate=accumulate)
    noisy = result(200, Form.LONG, settings=settings)
    history = [
        result(50, step_seconds=100.0, settings=settings),
        result(100, Form.LONG, step_seconds=100.0, settings=settings),
        replace(noisy, measurement=replace(noisy.measurement, step_seconds=(250.0, 200.0, 250.0))),
    ]
    assert settled(BatchFinder(max_batch=200, settings=settings), history) == 100


def test_no_legal_size_in_a_gap_beside_the_peak_that_may_be_faster_ends_the_search() -> None:
    """Going by 8, only sizes from 17 on can be as fast as 24."""
    history = [
        result(8, step_seconds=17.0),
        result(24, Form.LONG, step_seconds=24.0),
        result(32, Form.LONG, step_seconds=40.0),
    ]
    assert settled(BatchFinder(multiple_of=8, max_batch=32), history) == 24


def test_a_size_beside_the_peak_that_failed_is_not_asked_again() -> None:
    history = [
        result(50, step_seconds=100.0),
        result(100, Form.LONG, step_seconds=100.0),
        result(141, fault=OUT_OF_MEMORY),
        result(200, Form.LONG, step_seconds=250.0),
    ]
    assert settled(BatchFinder(max_batch=200), history) == 100


def test_a_size_above_the_answer_is_not_recommended_however_fast() -> None:
    """32 fits in the short form only; the long form fails from 9 on."""
    history = [
        result(4, step_seconds=8.0),
        result(8, Form.LONG, step_seconds=8.0),
        result(9, Form.LONG, OUT_OF_MEMORY),
        result(16, step_seconds=16.0),
        result(16, Form.LONG, OUT_OF_MEMORY),
        result(32, step_seconds=1.0),
    ]
    assert settled(BatchFinder(max_batch=32), history) == 8


def test_after_a_recording_a_fast_size_is_looked_for_by_strides_down_and_then_half_way() -> None:
    answer, history = recommended_after_recording(400, full_from(8))
    assert asked(history) == [*((size, Form.SHORT) for size in (100, 25, 6, 14)), (14, Form.LONG)]
    assert answer.recommended_batch == 14


@pytest.mark.parametrize("full", [1, 2, 3, 5, 8, 13, 25, 60, 99, 150, 199, 250, 330, 399, 400])
@pytest.mark.parametrize("unit", [1, 8])
def test_after_a_recording_the_smallest_fast_size_is_met_within_a_factor_of_two(full: int, unit: int) -> None:
    answer, history = recommended_after_recording(400, full_from(full), unit=unit)
    assert throughput(full_from(full), answer.recommended_batch, 400) >= 0.98
    assert answer.recommended_batch <= 2 * max(full, unit) + unit
    assert answer.recommended_batch % unit == 0
    assert len(history) <= 5


@pytest.mark.parametrize(
    ("step_seconds", "sizes"),
    [
        (lambda size: 1.0, [100]),
        (lambda size: size**0.5, [100, 280]),
        (lambda size: 40.0 + size, [100, 223]),
        (lambda size: 400.0 + size, [100]),
    ],
)
def test_after_a_recording_throughput_that_grows_up_to_the_limit_costs_two_probes_at_most(
    step_seconds: Callable[[int], float], sizes: list[int]
) -> None:
    answer, history = recommended_after_recording(400, step_seconds)
    assert answer.recommended_batch == 400
    assert asked(history) == [(size, Form.SHORT) for size in sizes]


def test_growing_has_timed_enough_where_steps_take_equally_long_between_two_sizes() -> None:
    """16 is fast; 4 takes as long a step as 8 would, so nothing below 8 can be fast, and 16 is near enough to it."""
    answer, history = recommended(full_from(8), 400)
    assert answer.recommended_batch == 16
    assert asked(history) == [(16, Form.LONG)]


def test_a_wide_gap_below_the_smallest_fast_size_is_halved_by_ratio() -> None:
    """Up to 78 steps would have to be faster than those of 64 to keep up with 256."""
    history = [
        result(64, step_seconds=80.0),
        result(256, step_seconds=256.0),
        result(1000, Form.LONG, step_seconds=1000.0),
    ]
    assert BatchFinder(max_batch=1000).ask(history) == Question(
        batch_size=142, form=Form.SHORT, reason=Reason.RECOMMEND
    )


def test_below_the_largest_slow_size_nothing_is_looked_for() -> None:
    """At 2 throughput is 0.9 of that at 100, at 50 it is 0.6."""
    history = [
        result(2, step_seconds=2 / 0.9),
        result(50, step_seconds=50 / 0.6),
        result(100, Form.LONG, step_seconds=100.0),
    ]
    assert settled(BatchFinder(max_batch=100), history) == 100


def test_below_the_largest_size_that_failed_nothing_is_looked_for() -> None:
    history = [
        result(10, fault=OUT_OF_MEMORY),
        result(90, fault=OUT_OF_MEMORY),
        result(100, Form.LONG, step_seconds=100.0),
    ]
    assert settled(BatchFinder(max_batch=100), history) == 100


def test_after_a_recording_a_peak_in_the_middle_is_closed_in_on() -> None:
    answer, history = recommended_after_recording(496, slower_above_48)
    assert asked(history) == [*((size, Form.SHORT) for size in (124, 31, 7, 62)), (31, Form.LONG)]
    assert throughput(slower_above_48, answer.recommended_batch, 496) >= 0.9


def test_after_a_recording_the_only_size_recorded_and_not_timed_may_be_recommended() -> None:
    answer, history = recommended_after_recording(32, full_from(1))
    assert asked(history) == [(8, Form.SHORT), (2, Form.SHORT), (2, Form.LONG)]
    assert answer.recommended_batch == 2


@pytest.mark.parametrize("unit", [1, 2])
def test_a_smaller_size_that_fails_bounds_the_way_down_and_is_reported(unit: int) -> None:
    answer, history = recommended_after_recording(
        400, full_from(8), unit=unit, fault=lambda size, *_: OUT_OF_MEMORY if size == 100 else None
    )
    assert asked(history) == [(100, Form.SHORT), (200, Form.SHORT), (200, Form.LONG)]
    assert (answer.recommended_batch, answer.holes) == (200, (100,))


def test_a_smaller_size_that_cannot_be_timed_is_asked_once() -> None:
    answer, history = recommended_after_recording(400, lambda size: 400.0 if size == 400 else 0.0)
    assert asked(history) == [(100, Form.SHORT)]
    assert answer.recommended_batch == 400


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("full", [1, 30, 200, 400])
def test_noise_costs_no_more_probes_and_hardly_any_throughput(full: int, seed: int) -> None:
    """One percent either way on both figures that are compared, on top of the two percent given away on purpose."""
    step_seconds = noisy(full_from(full), 0.01, seed)
    answer, history = recommended_after_recording(400, step_seconds)
    grown, grown_history = recommended(step_seconds, 400)
    for chosen, forms in (
        (answer.recommended_batch, asked(history)),
        (grown.recommended_batch, asked(grown_history)),
    ):
        assert throughput(full_from(full), chosen, 400) >= 0.98 * 0.99 / 1.01
        assert len(forms) <= 6
        assert len(set(forms)) == len(forms)


@pytest.mark.parametrize("step_seconds", [full_from(8), slower_above_48, noisy(full_from(30), 0.05, 1)])
def test_a_recommendation_interrupted_at_any_probe_goes_on_as_before(step_seconds: Callable[[int], float]) -> None:
    prober = FakeProber(step_seconds=step_seconds)
    search = after_recording(400, step_seconds)
    stop, history = drive(search, prober, replace(BUDGET, limit_bytes=400))
    again = after_recording(400, step_seconds)
    assert [again.ask(tuple(history[:n])) for n in range(len(history) + 1)] == [*prober.asked, stop]


def test_when_time_is_out_the_best_of_the_sizes_certified_by_then_stands() -> None:
    prober = FakeProber(step_seconds=lambda size: 1.0 if size <= 40 else size / 40)
    finder = BatchFinder()
    _, history = drive(finder, prober, replace(BUDGET, limit_bytes=100))
    certified = next(n for n, p in enumerate(history, 1) if p.form is Form.LONG and p.fits)
    assert finder.conclude(history[: certified - 1]) is None
    stop = finder.conclude(history[:certified])
    assert stop is not None and stop.answer is not None
    assert (stop.answer.max_batch, stop.answer.recommended_batch) == (100, 100)
    assert (stop.answer.refuted_at, stop.answer.limited_by, stop.answer.complete) == (101, "device_memory", False)
    found = f"Batch 100 is certified and 101 is refuted (device_memory), after {certified} probes."
    assert stop.reason == f"{found} Time ran out before the search was complete."


def test_a_size_certified_before_any_other_failed_says_that_larger_ones_may_fit() -> None:
    finder = BatchFinder()
    history = [result(8), result(8, Form.LONG, step_seconds=1.0), result(16, Form.LONG, step_seconds=3.0), result(32)]
    stop = finder.conclude(history)
    assert stop is not None and stop.answer is not None
    assert (stop.answer.max_batch, stop.answer.recommended_batch, stop.answer.refuted_at) == (16, 8, None)
    assert stop.answer.limited_by == "not_searched"


def test_where_the_limit_alone_is_asked_for_one_that_was_not_found_is_no_answer() -> None:
    found, history = BatchFinder(recommend=False), [result(8), result(8, Form.LONG, step_seconds=1.0)]
    assert found.conclude(history) is None
    whole, history = drive(found, FakeProber(), replace(BUDGET, limit_bytes=20))
    assert found.conclude(history) == whole


def test_under_several_allocators_the_largest_batch_that_is_certified_stands() -> None:
    others = Settings(allocator="expandable_segments:True")
    finder = BestAllocator(BatchFinder(), (others.allocator,))
    history = [result(8, Form.LONG, step_seconds=1.0), result(9, Form.LONG, OUT_OF_MEMORY)]
    history += [result(9, Form.LONG, settings=others, step_seconds=1.0)]
    stop = finder.conclude(history)
    assert stop is not None and stop.answer is not None
    assert (stop.answer.max_batch, stop.answer.settings, stop.answer.complete) == (9, others, False)
