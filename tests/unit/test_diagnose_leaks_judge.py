"""What is said of readings and suspects: rates, kinds, the end, and what is not worth telling."""

from dataclasses import replace

import pytest

from autotune.diagnose.leaks.judge import judge_leaks
from autotune.diagnose.leaks.signs import grows, has_told, steps_left
from autotune.model import Cause, Failure, LeakEvidence, LeakKind, Suspect

KIB, MIB = 1 << 10, 1 << 20
STEPS = 30
FLAT = (100 * MIB,) * STEPS
QUIET = LeakEvidence(
    warm_up=5,
    held_bytes=FLAT,
    garbage_bytes=(0,) * STEPS,
    blocks=(1000,) * STEPS,
    room_bytes=100 * MIB,
    gc_every_steps=10.0,
)


def rising(by: int) -> tuple[int, ...]:
    return tuple(100 * MIB + by * step for step in range(STEPS))


def suspect(kind: LeakKind, size: float | None, **details: str) -> Suspect:
    return Suspect(kind=kind, what="it", count_per_step=1.0, bytes_per_step=size, **details)


LEAK = replace(QUIET, held_bytes=rising(MIB), suspects=(suspect(LeakKind.TENSORS, MIB),))


def test_flat_readings_are_clean_and_tell_at_once() -> None:
    assert has_told(QUIET) and not grows(QUIET)
    leaks = judge_leaks(QUIET, None)
    assert leaks.clean and leaks.ends_at_step is None and leaks.notes == ()


def test_growth_is_told_with_rate_fit_and_the_first_step_that_finds_no_room() -> None:
    leaks = judge_leaks(LEAK, None)
    assert not has_told(LEAK), "it may still level off"
    assert leaks.device is not None
    assert (leaks.device.bytes_per_step, leaks.device.fit) == (MIB, 1.0)
    assert (leaks.device.from_step, leaks.device.to_step) == (6, 30)
    assert leaks.ends_at_step == 30 + 100 + 1
    assert steps_left(LEAK) == 100


def test_memory_ends_with_the_segments_that_the_allocator_takes_where_tensors_leave_some_of_each() -> None:
    """Two tensors of 8 MiB fill a segment of 20."""
    eight = suspect(LeakKind.TENSORS, 8 * MIB)
    leak = replace(LEAK, held_bytes=rising(8 * MIB), suspects=(eight,), room_bytes=800 * MIB)
    assert judge_leaks(leak, None).ends_at_step == 30 + 100 + 1
    segments = tuple(200 * MIB + 20 * MIB * (step // 2) for step in range(STEPS))
    on_device = replace(leak, reserved_bytes=segments, unreserved_bytes=500 * MIB)
    assert judge_leaks(on_device, None).ends_at_step == 30 + 50 + 1
    few = tuple(200 * MIB + 20 * MIB * (step // 10) for step in range(STEPS))
    assert judge_leaks(replace(on_device, reserved_bytes=few), None).ends_at_step == 131, "too few to show a rate"


def test_without_a_limit_there_is_no_end() -> None:
    assert judge_leaks(replace(LEAK, room_bytes=None), None).ends_at_step is None


def test_a_death_is_told_with_its_step_also_where_too_little_was_seen() -> None:
    failure = Failure(cause=Cause.DEVICE_MEMORY, message="out of memory", step=7)
    leaks = judge_leaks(replace(QUIET, held_bytes=FLAT[:6], garbage_bytes=(), blocks=()), failure)
    assert leaks.died_at_step == 7 and not leaks.clean


def test_what_no_suspect_explains_is_told_beside_them_where_it_is_much() -> None:
    """A buffer that becomes larger has libraries make kernels for each of its shapes."""
    buffer = (suspect(LeakKind.STATE, MIB / 4),)
    leaks = judge_leaks(replace(LEAK, suspects=buffer), None)
    assert {one.kind: one.bytes_per_step for one in leaks.suspects} == {
        LeakKind.UNKNOWN: 0.75 * MIB - KIB,
        LeakKind.STATE: MIB / 4,
    }
    nearly = (suspect(LeakKind.STATE, 0.8 * MIB),)
    assert [one.kind for one in judge_leaks(replace(LEAK, suspects=nearly), None).suspects] == [LeakKind.STATE]
    small = (replace(suspect(LeakKind.TENSORS, 8 * KIB), count_per_step=16.0),)
    leaks = judge_leaks(replace(LEAK, held_bytes=rising(18 * KIB), suspects=small), None)
    assert [one.kind for one in leaks.suspects] == [LeakKind.TENSORS], "small tensors take as much for themselves"


def test_a_suspect_too_small_for_an_alarm_is_told_where_memory_grows_by_more() -> None:
    small = (suspect(LeakKind.STATE, 2 * KIB),)
    assert judge_leaks(replace(QUIET, suspects=small), None).clean
    leaks = judge_leaks(replace(LEAK, held_bytes=rising(10 * KIB), suspects=small), None)
    assert [one.kind for one in leaks.suspects] == [LeakKind.UNKNOWN, LeakKind.STATE]
    leaks = judge_leaks(replace(LEAK, held_bytes=rising(30 * KIB), suspects=small), None)
    assert [one.kind for one in leaks.suspects] == [LeakKind.UNKNOWN]


def test_a_graph_gets_what_nothing_else_explains() -> None:
    both = (suspect(LeakKind.GRAPH, None), suspect(LeakKind.TENSORS, MIB / 4))
    leaks = judge_leaks(replace(LEAK, suspects=both), None)
    assert {one.kind: one.bytes_per_step for one in leaks.suspects} == {
        LeakKind.GRAPH: 0.75 * MIB,
        LeakKind.TENSORS: MIB / 4,
    }


@pytest.mark.parametrize("kind", [LeakKind.GRAPH, LeakKind.HOOKS])
def test_graphs_and_hooks_are_told_however_small(kind: LeakKind) -> None:
    small = replace(QUIET, graphs_kept=30, hooks_added=30, suspects=(suspect(kind, None),))
    assert grows(small)
    leaks = judge_leaks(small, None)
    assert [one.kind for one in leaks.suspects] == [kind] and not leaks.clean


def test_what_is_small_beside_the_leak_is_not_told() -> None:
    small = suspect(LeakKind.TENSORS, MIB / 50)
    (one,) = judge_leaks(replace(LEAK, suspects=(*LEAK.suspects, small)), None).suspects
    assert one.bytes_per_step == MIB


def test_growth_that_nothing_explains_is_of_an_unknown_kind() -> None:
    (one,) = judge_leaks(replace(LEAK, suspects=()), None).suspects
    assert (one.kind, one.bytes_per_step) == (LeakKind.UNKNOWN, MIB)


def test_why_there_was_no_closer_look_is_a_note() -> None:
    leaks = judge_leaks(replace(LEAK, suspects=(), trouble="memory would not last"), None)
    assert leaks.notes == ("memory would not last",) and not leaks.clean


def test_garbage_that_python_collects_in_time_is_a_note() -> None:
    cyclic = replace(QUIET, garbage_bytes=(MIB,) * STEPS, suspects=(suspect(LeakKind.CYCLES, MIB, made_at="a.py:3"),))
    leaks = judge_leaks(cyclic, None)
    assert leaks.clean
    assert "1 MiB of every step" in leaks.notes[0] and "10 steps" in leaks.notes[0] and "a.py:3" in leaks.notes[0]


@pytest.mark.parametrize("every", [None, 200.0], ids=["never collected", "collected too late"])
def test_garbage_that_outlives_memory_is_a_leak(every: float | None) -> None:
    cyclic = replace(
        QUIET, garbage_bytes=(MIB,) * STEPS, gc_every_steps=every, suspects=(suspect(LeakKind.CYCLES, MIB),)
    )
    leaks = judge_leaks(cyclic, None)
    assert [one.kind for one in leaks.suspects] == [LeakKind.CYCLES]
    assert leaks.device is not None and leaks.device.bytes_per_step == MIB
    assert leaks.ends_at_step == 131


def test_objects_in_python_s_arenas_grow_as_fast_as_they_were_counted() -> None:
    stairs = tuple(100 * MIB + MIB * (step // 4) for step in range(STEPS))
    counted = suspect(LeakKind.HOST, 200 * KIB)
    leaks = judge_leaks(replace(QUIET, held_bytes=stairs, suspects=(counted,)), None)
    assert leaks.device is not None and leaks.device.bytes_per_step == 200 * KIB


def test_what_batches_leave_is_the_workers_where_these_grow_as_well() -> None:
    made = suspect(LeakKind.TENSORS, MIB, phase="data")
    seen = replace(
        LEAK, suspects=(made,), worker_bytes=tuple(2 * MIB * n for n in range(20)), batches_per_round=2, workers=2
    )
    leaks = judge_leaks(seen, None)
    assert leaks.device is None and leaks.workers is not None
    assert leaks.workers.bytes_per_step == MIB
    assert [one.kind for one in leaks.suspects] == [LeakKind.WORKERS]
    alone = judge_leaks(replace(LEAK, suspects=(made,)), None)
    assert alone.workers is None and [one.kind for one in alone.suspects] == [LeakKind.TENSORS]


def test_host_memory_beside_a_device_is_told_apart() -> None:
    seen = replace(QUIET, host_bytes=rising(MIB), suspects=(suspect(LeakKind.HOST, MIB),))
    leaks = judge_leaks(seen, None)
    assert leaks.device is None and leaks.host is not None and leaks.host.bytes_per_step == MIB
    assert leaks.ends_at_step is None, "of the device there is enough"


def test_thousands_of_readings_are_judged_by_some_of_them() -> None:
    many = tuple(100 * MIB + MIB * step for step in range(20_000))
    leaks = judge_leaks(replace(LEAK, held_bytes=many, garbage_bytes=(0,) * 20_000), None)
    assert leaks.device is not None and leaks.device.bytes_per_step == MIB
