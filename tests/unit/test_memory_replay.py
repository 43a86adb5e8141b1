"""What a replay says about each step, and where it stops."""

import pytest

from autotune.memory.allocator_config import AllocatorConfig
from autotune.memory.replay import OomPoint, Replayed, StepPeaks, replay
from autotune.model import Mark, Phase
from autotune.units import MIB

NATIVE = AllocatorConfig()
# Built: one block that stays. Step 1: two more, one of which stays. Step 2: a short-lived one.
SIZES = [size * MIB for size in (10, 30, 20, 12)]
EVENTS = (1, 2, 3, -2, 4, -4)
MARKS = (
    Mark(0, Phase.BUILD, 0, 0),
    Mark(1, Phase.FORWARD, 1, 8),
    Mark(2, Phase.BACKWARD, 1, 8),
    Mark(4, Phase.FORWARD, 2, 8),
)


def mib(replayed: Replayed) -> list[tuple[int, int, float, float, int]]:
    return [
        (one.step, one.batch_size, one.allocated_bytes / MIB, one.reserved_bytes / MIB, one.retries)
        for one in replayed.steps
    ]


def test_each_step_has_its_own_peaks() -> None:
    replayed = replay(SIZES, EVENTS, MARKS, NATIVE)
    assert mib(replayed) == [(0, 0, 10, 10, 0), (1, 8, 60, 60, 0), (2, 8, 42, 60, 0)]
    assert (replayed.allocated_bytes, replayed.reserved_bytes, replayed.retries) == (60 * MIB, 60 * MIB, 0)
    assert replayed.out_of_memory is None


def test_a_step_begins_with_what_is_in_use_already() -> None:
    replayed = replay([30 * MIB], (1, -1), (Mark(0, Phase.BUILD, 0, 0), Mark(1, Phase.FORWARD, 1, 8)), NATIVE)
    assert mib(replayed) == [(0, 0, 30, 30, 0), (1, 8, 30, 30, 0)]


def test_the_event_at_the_peak_is_the_first_that_reaches_it() -> None:
    assert replay(SIZES, EVENTS, MARKS, NATIVE).peak_event == 2
    marks = (Mark(0, Phase.FORWARD, 1, 8), Mark(2, Phase.FORWARD, 2, 8))
    assert replay([512, 512], (1, -1, 2, -2), marks, NATIVE).peak_event == 0


def test_sizes_of_another_batch_can_be_replayed() -> None:
    replayed = replay([10 * MIB, 60 * MIB, 40 * MIB, 24 * MIB], EVENTS, MARKS, NATIVE)
    assert replayed.allocated_bytes == 110 * MIB


def test_retries_belong_to_the_step_they_happen_in() -> None:
    replayed = replay([30 * MIB, 32 * MIB], (1, -1, 2), (Mark(2, Phase.FORWARD, 1, 8),), NATIVE, cap_bytes=40 * MIB)
    assert mib(replayed) == [(0, 0, 30, 30, 0), (1, 8, 32, 32, 1)]


def test_reserved_memory_given_back_is_not_counted_in_later_steps() -> None:
    sizes, events = [12 * MIB, 26 * MIB, 30 * MIB], (1, 2, -1, -2, 3)
    marks = (Mark(0, Phase.FORWARD, 1, 8), Mark(5, Phase.FORWARD, 2, 8))
    replayed = replay(sizes, events, marks, NATIVE, cap_bytes=40 * MIB)
    assert mib(replayed) == [(1, 8, 38, 38, 1), (2, 8, 30, 30, 0)]


def test_passes_at_several_sizes_are_kept_apart() -> None:
    marks = (Mark(0, Phase.FORWARD, 1, 2), Mark(2, Phase.FORWARD, 1, 3))
    replayed = replay([10 * MIB, 12 * MIB], (1, -1, 2, -2), marks, NATIVE)
    assert mib(replayed) == [(1, 2, 10, 10, 0), (1, 3, 12, 22, 0)]


def test_a_step_without_events_keeps_what_there_is() -> None:
    marks = (Mark(0, Phase.BUILD, 0, 0), Mark(1, Phase.FORWARD, 1, 8), Mark(1, Phase.FORWARD, 2, 8))
    assert mib(replay([10 * MIB], (1,), marks, NATIVE)) == [(0, 0, 10, 10, 0), (1, 8, 10, 10, 0), (2, 8, 10, 10, 0)]


def test_without_marks_all_is_one_step() -> None:
    assert mib(replay(SIZES, EVENTS, (), NATIVE)) == [(0, 0, 60, 60, 0)]


def test_an_empty_history_needs_nothing() -> None:
    assert replay([], (), (), NATIVE) == Replayed((StepPeaks(0, 0, 0, 0, 0),), None, -1)


def test_it_stops_where_memory_runs_out() -> None:
    replayed = replay(SIZES, EVENTS, MARKS, NATIVE, cap_bytes=50 * MIB)
    assert replayed.out_of_memory == OomPoint(
        event=2,
        phase=Phase.BACKWARD,
        step=1,
        batch_size=8,
        requested_bytes=20 * MIB,
        allocated_bytes=40 * MIB,
        reserved_bytes=40 * MIB,
    )
    assert mib(replayed) == [(0, 0, 10, 10, 0), (1, 8, 40, 40, 1)]
    assert replayed.peak_event == 1


def test_memory_can_run_out_before_the_first_mark() -> None:
    point = replay([30 * MIB], (1,), (Mark(1, Phase.FORWARD, 1, 8),), NATIVE, cap_bytes=20 * MIB).out_of_memory
    assert point is not None
    assert (point.phase, point.step) == (Phase.LOAD, 0)


def test_allocations_of_several_streams_do_not_share_memory() -> None:
    sizes, events = [12 * MIB] * 3, (1, -1, 2, -2, 3)
    assert replay(sizes, events, (), NATIVE).reserved_bytes == 12 * MIB
    assert replay(sizes, events, (), NATIVE, streams=(0, 1, 0)).reserved_bytes == 24 * MIB
    assert replay([*sizes[:2], 30 * MIB], events, (), NATIVE, streams=(0, 0, 1)).reserved_bytes == 42 * MIB


def test_the_options_are_those_of_the_allocator() -> None:
    expandable = AllocatorConfig.parse("expandable_segments:True")
    assert replay([30 * MIB], (1,), (), expandable).reserved_bytes == 40 * MIB


def test_an_end_without_a_beginning_is_an_error() -> None:
    with pytest.raises(KeyError):
        replay([MIB], (1, -1, -1), (), NATIVE)
