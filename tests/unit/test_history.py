"""The allocator's entries made into a trace. The entries are made up; their form is that of PyTorch's memory snapshot."""

from collections.abc import Mapping
from typing import Any

import pytest

from autotune.model import Mark, PassPeaks, Phase
from autotune.probe.history import make_trace

PASS = PassPeaks(batch_size=2, steps=3, allocated_bytes=100, reserved_bytes=200)


def entry(action: str, addr: int, size: int = 512, stream: int = 0) -> Mapping[str, Any]:
    return {"action": action, "addr": addr, "size": size, "stream": stream, "time_us": 1, "frames": []}


def alloc(addr: int, size: int = 512, stream: int = 0) -> Mapping[str, Any]:
    return entry("alloc", addr, size, stream)


def free(addr: int) -> list[Mapping[str, Any]]:
    """Both halves: only the second one makes room."""
    return [entry("free_requested", addr), entry("free_completed", addr)]


def test_allocations_are_numbered_and_ended_in_the_order_of_the_entries() -> None:
    entries = [alloc(0xA, 100), alloc(0xB, 3000), *free(0xA), alloc(0xC, 7), *free(0xC), *free(0xB)]
    trace = make_trace(entries, 6, [], [PASS])
    assert trace is not None
    assert trace.sizes == (100, 3000, 7)
    assert trace.events == (1, 2, -1, 3, -3, -2)
    assert trace.streams == ()
    assert (trace.marks, trace.passes) == ((), (PASS,))


def test_an_address_used_again_is_another_allocation() -> None:
    trace = make_trace([alloc(0xA, 1), *free(0xA), alloc(0xA, 2), *free(0xA), alloc(0xA, 3)], 5, [], [PASS])
    assert trace is not None
    assert (trace.sizes, trace.events) == ((1, 2, 3), (1, -1, 2, -2, 3))


def test_what_is_alive_at_the_end_is_never_ended() -> None:
    trace = make_trace([alloc(0xA), alloc(0xB), *free(0xB)], 3, [], [PASS])
    assert trace is not None
    assert trace.events == (1, 2, -2)


def test_a_free_counts_when_it_is_completed() -> None:
    """A block that another stream still uses is given back later than asked for."""
    requested, completed = free(0xA)
    trace = make_trace([alloc(0xA), requested, alloc(0xB), completed], 3, [], [PASS])
    assert trace is not None
    assert trace.events == (1, 2, -1)


@pytest.mark.parametrize("action", ["segment_alloc", "segment_free", "segment_map", "segment_unmap", "oom", "snapshot"])
def test_entries_about_segments_are_passed_over(action: str) -> None:
    trace = make_trace([entry(action, 0xA, 2 << 20), alloc(0xA), entry(action, 0xB), *free(0xA)], 2, [], [PASS])
    assert trace is not None
    assert (trace.sizes, trace.events) == ((512,), (1, -1))


def test_what_was_allocated_before_recording_is_left_out_when_it_is_freed() -> None:
    trace = make_trace([*free(0xF), alloc(0xA), *free(0xE), *free(0xA)], 4, [], [PASS])
    assert trace is not None
    assert trace.events == (1, -1)


@pytest.mark.parametrize("count", [0, 3, 5, 6])
def test_a_record_that_lost_entries_is_no_trace(count: int) -> None:
    entries = [alloc(0xA), alloc(0xB), *free(0xA), *free(0xB)]
    assert make_trace(entries, 4, [], [PASS]) is not None
    assert make_trace(entries, count, [], [PASS]) is None


def test_streams_are_numbered_as_they_appear() -> None:
    trace = make_trace([alloc(1, stream=7), alloc(2, stream=0), alloc(3, stream=7), alloc(4, stream=9)], 4, [], [PASS])
    assert trace is not None
    assert trace.streams == (0, 1, 0, 2)


def test_one_stream_is_not_worth_a_word_whatever_its_number() -> None:
    trace = make_trace([alloc(1, stream=7), alloc(2, stream=7)], 2, [], [PASS])
    assert trace is not None
    assert trace.streams == ()


def test_marks_keep_their_place_among_the_events() -> None:
    entries = [alloc(1), alloc(2), *free(2), alloc(3), *free(1)]
    marks = [(0, Phase.BUILD, 0, 0), (1, Phase.DATA, 1, 2), (3, Phase.FORWARD, 1, 2), (5, Phase.EXIT, 1, 2)]
    trace = make_trace(entries, 5, marks, [PASS])
    assert trace is not None
    assert trace.marks == (
        Mark(0, Phase.BUILD, 0, 0),
        Mark(1, Phase.DATA, 1, 2),
        Mark(3, Phase.FORWARD, 1, 2),
        Mark(5, Phase.EXIT, 1, 2),
    )


def test_marks_move_up_where_a_free_before_them_is_left_out() -> None:
    entries = [alloc(1), *free(0xF), alloc(2), *free(0xE), alloc(3)]
    marks = [(at, Phase.FORWARD, 1, 2) for at in range(6)]
    trace = make_trace(entries, 5, marks, [PASS])
    assert trace is not None
    assert trace.events == (1, 2, 3)
    assert [mark.position for mark in trace.marks] == [0, 1, 1, 2, 2, 3]


def test_a_record_of_nothing_is_a_trace_of_nothing() -> None:
    trace = make_trace([], 0, [(0, Phase.BUILD, 0, 0)], [])
    assert trace is not None
    assert (trace.sizes, trace.events, trace.marks) == ((), (), (Mark(0, Phase.BUILD, 0, 0),))
