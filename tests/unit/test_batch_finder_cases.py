"""The batch finder on planted limits: what real workloads do besides running out of memory."""

from dataclasses import replace

import pytest

from autotune.model import Answer, Cause, Form, ProbeResult, Question, Reason, Stop
from autotune.search.batch import BatchFinder
from autotune.search.verdict import Ending, why_nothing
from tests.fakes import (
    BUDGET,
    HANGS,
    LIBRARY,
    NOT_FINITE,
    OUT_OF_MEMORY,
    REJECTED,
    SEGFAULT,
    FakeProber,
    Fault,
    drive,
    ends_at,
    result,
)


def search(
    prober: FakeProber, limit: int = 1000, *, start: int | None = None, data_set: int | None = None, unit: int = 1
) -> tuple[Stop, list[ProbeResult]]:
    finder = BatchFinder(start_batch=start, data_set_size=data_set, multiple_of=unit, recommend=False)
    return drive(finder, prober, replace(BUDGET, limit_bytes=limit), at_most=40)


def answer(stop: Stop) -> Answer:
    assert stop.answer is not None, stop.reason
    return stop.answer


def above(limit: int, fault: Fault) -> FakeProber:
    return FakeProber(fault=lambda size, *_: fault if size > limit else None)


def small_data(samples: int, seen: int | None) -> FakeProber:
    """A model that hardly takes memory, on a data set of unknown length."""
    return FakeProber(
        fixed_bytes=1, per_sample_bytes=0, fault=lambda size, *_: ends_at(seen) if size > samples else None
    )


def test_c02_an_unknown_data_set_of_100_is_the_limit_after_eight_probes_at_most() -> None:
    stop, history = search(small_data(100, seen=100))
    assert (answer(stop).max_batch, answer(stop).refuted_at, answer(stop).limited_by) == (100, None, "data_set")
    assert len(history) <= 8
    assert [(p.batch_size, p.reason) for p in history[-2:]] == [(100, Reason.DATA_SET), (100, Reason.CERTIFY)]


def test_c02_a_known_data_set_is_never_exceeded() -> None:
    stop, history = search(FakeProber(fixed_bytes=1, per_sample_bytes=0), data_set=100)
    assert (answer(stop).max_batch, answer(stop).limited_by) == (100, "data_set")
    assert max(p.batch_size for p in history) == 100
    assert len(history) <= 8


def test_c02_a_loader_that_drops_its_last_batch_yields_nothing_and_is_bisected() -> None:
    for nothing in (None, 0):
        stop, _ = search(small_data(100, seen=nothing))
        assert (answer(stop).max_batch, answer(stop).refuted_at, answer(stop).limited_by) == (100, 101, "data_set")


def test_the_end_of_the_data_is_rounded_to_a_legal_size() -> None:
    stop, _ = search(small_data(100, seen=100), unit=8)
    assert (answer(stop).max_batch, answer(stop).limited_by) == (96, "data_set")


def test_a_start_beyond_the_data_is_followed_by_the_size_at_which_the_data_ended() -> None:
    stop, history = search(small_data(100, seen=100), start=4096)
    assert answer(stop).max_batch == 100
    assert [p.batch_size for p in history] == [4096, 100, 100]


def test_a_short_batch_below_a_size_that_ran_in_full_is_not_the_end_of_the_data() -> None:
    reply = BatchFinder().ask([result(64), result(128, fault=ends_at(32))])
    assert reply == Question(batch_size=96, form=Form.SHORT, reason=Reason.BISECT)


def test_memory_below_the_end_of_the_data_is_the_limit() -> None:
    prober = FakeProber(fault=lambda size, *_: ends_at(100) if size > 100 else None)
    stop, _ = search(prober, 90, start=256)
    assert (answer(stop).max_batch, answer(stop).refuted_at, answer(stop).limited_by) == (90, 91, "device_memory")


def test_data_that_ends_before_the_smallest_batch_leaves_no_answer() -> None:
    stop, history = search(FakeProber(fault=lambda *_: ends_at(5)), unit=8)
    assert stop == Stop(reason="The data set ends at 5, before a batch of 8.", answer=None)
    assert why_nothing(history).probe.batch_size == 8


def test_c03_a_start_far_too_large_comes_down_to_the_limit() -> None:
    stop, history = search(FakeProber(), 10, start=4096)
    assert (answer(stop).max_batch, answer(stop).refuted_at) == (10, 11)
    assert len(history) <= 16


def test_c03_a_start_far_too_large_with_no_limit_at_all_executes_one_and_gives_no_number() -> None:
    stop, history = search(FakeProber(), 0, start=4096)
    assert stop.answer is None
    assert history[-1].batch_size == 1
    assert why_nothing(history) == (Ending.NOTHING_FITS, history[-1])


def test_c04_nothing_fits_after_one_probe_of_the_smallest_size() -> None:
    stop, history = search(FakeProber(fixed_bytes=1000))
    assert stop.answer is None
    assert [p.batch_size for p in history] == [1]
    assert why_nothing(history).kind is Ending.NOTHING_FITS


def test_c13_a_library_status_above_a_size_is_the_limit() -> None:
    stop, _ = search(above(37, LIBRARY))
    assert (answer(stop).max_batch, answer(stop).refuted_at, answer(stop).limited_by) == (37, 38, "library_status")


@pytest.mark.parametrize("start", [None, 4096])
def test_c13_a_library_status_at_every_size_is_the_environment_after_three_probes(start: int | None) -> None:
    stop, history = search(FakeProber(fault=lambda *_: LIBRARY), start=start)
    assert stop.answer is None
    assert len(history) == 3
    assert why_nothing(history).kind is Ending.ENVIRONMENT
    assert why_nothing(history).probe.batch_size == 1


def test_c13_a_library_status_at_one_size_is_a_hole_that_the_search_passes() -> None:
    stop, history = search(FakeProber(fault=lambda size, *_: LIBRARY if size == 64 else None), 100)
    assert (answer(stop).max_batch, answer(stop).refuted_at, answer(stop).holes) == (100, 101, (64,))
    assert [p.batch_size for p in history if p.reason is Reason.NEIGHBOUR] == [65]


def test_a_hole_right_below_the_ceiling_is_no_hole_but_the_refutation() -> None:
    stop, _ = search(FakeProber(fault=lambda size, *_: LIBRARY if size == 100 else None), 100)
    assert (answer(stop).max_batch, answer(stop).refuted_at) == (99, 100)


def test_a_hole_with_the_cause_of_the_ceiling_is_recognised_before_the_search_ends() -> None:
    """Crashes above 90 and at 70; 70 is met while bisecting, when crashing above is known."""
    prober = FakeProber(fault=lambda size, *_: SEGFAULT if size > 90 or size == 72 else None)
    stop, _ = search(prober, start=48)
    assert (answer(stop).max_batch, answer(stop).refuted_at, answer(stop).holes) == (90, 91, (72,))


@pytest.mark.parametrize("start", [None, 16, 37])
@pytest.mark.parametrize(("multiple", "limit", "expected"), [(2, 37, 36), (8, 50, 48), (3, 50, 48), (6, 47, 42)])
def test_c15_only_multiples_are_legal(multiple: int, limit: int, expected: int, start: int | None) -> None:
    prober = FakeProber(fault=lambda size, *_: REJECTED if size % multiple else None)
    stop, history = search(prober, limit, start=start)
    assert (answer(stop).max_batch, answer(stop).limited_by) == (expected, "device_memory")
    assert answer(stop).step == multiple
    assert answer(stop).holes == ()
    assert len(history) <= 20


def test_c15_a_limit_of_the_user_s_code_does_not_pass_for_a_spacing() -> None:
    """Even sizes only, and an index error from 66 on: the larger spacings that would explain 66 are given up again."""
    prober = FakeProber(fault=lambda size, *_: REJECTED if size % 2 or size >= 66 else None)
    stop, _ = search(prober)
    assert (answer(stop).max_batch, answer(stop).step) == (64, 2)


def test_c16_batch_one_fails_and_64_is_found_with_every_size_from_two_on_legal() -> None:
    prober = FakeProber(fault=lambda size, *_: REJECTED if size == 1 else None)
    stop, history = search(prober, 64, data_set=65)
    assert (answer(stop).max_batch, answer(stop).refuted_at) == (64, 65)
    assert (answer(stop).step, answer(stop).holes) == (1, ())
    assert [p.batch_size for p in history[:3]] == [1, 2, 3], "3 tells 'at least 2' from 'even only'"


def test_c16_the_size_that_tells_a_minimum_from_a_spacing_is_not_asked_above_the_bound() -> None:
    finder = BatchFinder(max_batch=2, recommend=False)
    stop, history = drive(finder, FakeProber(fault=lambda size, *_: REJECTED if size == 1 else None))
    assert answer(stop).max_batch == 2
    assert [p.batch_size for p in history] == [1, 2, 2]


def test_legal_sizes_are_only_looked_for_below_the_ceiling() -> None:
    prober = FakeProber(fault=lambda size, *_: REJECTED if size < 3 else OUT_OF_MEMORY)
    stop, history = search(prober, start=4)
    assert stop.answer is None
    assert [p.batch_size for p in history] == [4, 2, 1]


def test_a_workload_that_only_runs_at_one_size_is_answered_with_that_size() -> None:
    stop, _ = search(FakeProber(fault=lambda size, *_: REJECTED if size != 32 else None), start=32)
    assert (answer(stop).max_batch, answer(stop).refuted_at, answer(stop).limited_by) == (32, 33, "user_code")


@pytest.mark.parametrize("start", [None, 4, 8, 4096])
def test_c18_a_bad_row_at_position_7_limits_the_batch_to_7(start: int | None) -> None:
    stop, _ = search(above(7, REJECTED), start=start)
    assert (answer(stop).max_batch, answer(stop).refuted_at, answer(stop).limited_by) == (7, 8, "user_code")


@pytest.mark.parametrize("start", [None, 4096])
@pytest.mark.parametrize(("fault", "cause"), [(SEGFAULT, Cause.SIGNAL), (NOT_FINITE, Cause.NON_FINITE)])
def test_c19_crashes_or_nan_above_100_are_a_bound_with_its_own_reason(
    fault: Fault, cause: Cause, start: int | None
) -> None:
    stop, history = search(above(100, fault), start=start)
    assert (answer(stop).max_batch, answer(stop).refuted_at, answer(stop).limited_by) == (100, 101, str(cause))
    assert len(history) <= 17


def test_c20_time_outs_from_16_on_leave_15() -> None:
    stop, _ = search(above(15, HANGS))
    assert (answer(stop).max_batch, answer(stop).refuted_at, answer(stop).limited_by) == (15, 16, "timeout")


def test_a_size_that_fits_above_an_out_of_memory_makes_that_a_hole() -> None:
    """Native allocators do this: 28 does not fit, 30 does."""
    finder = BatchFinder(recommend=False)
    history = [result(16), result(28, fault=OUT_OF_MEMORY), result(30), result(32, fault=OUT_OF_MEMORY)]
    assert finder.ask(history) == Question(batch_size=31, form=Form.SHORT, reason=Reason.REFUTE)
    history += [result(31, fault=OUT_OF_MEMORY), result(30, Form.LONG)]
    stop = finder.ask(history)
    assert isinstance(stop, Stop)
    assert (answer(stop).max_batch, answer(stop).refuted_at, answer(stop).holes) == (30, 31, (28,))
