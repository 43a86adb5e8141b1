"""Cutting traces into passes, and finding the requests of one pass in another."""

import random

import pytest

from autotune.memory.align import align
from autotune.memory.passes import HERE, OUTLIVES, Pass, Request, Segment, cut
from autotune.model import Mark, PassPeaks, Phase, Trace
from tests.unit.planted_passes import Leftovers, Planted, Writer, passes_of, trained

KEY = (1, Phase.FORWARD, 0)


def one_segment(batch_size: int, requests: list[Request]) -> Pass:
    return Pass(batch_size, 0, 0, (), {KEY: Segment(0, tuple(requests))})


def brief(size: int, span: int = 0) -> Request:
    return Request(size, HERE, span)


def kept(size: int) -> Request:
    return Request(size, 1, 0)


def layers(batch_size: int, count: int = 20) -> list[Request]:
    """Constant, proportional and affine requests, brief and kept, of which no two layers ask for the same bytes."""
    requests = []
    for layer in range(1, count + 1):
        requests += [brief(512 * layer), kept(10_000 * layer * batch_size), kept(3000 * layer), brief(70 * batch_size)]
    return requests


# Cutting


def test_a_trace_is_cut_into_its_passes_and_building_belongs_to_none() -> None:
    trace, (first, second) = passes_of(Planted(), (2, 3))
    assert (first.batch_size, second.batch_size) == (2, 3)
    assert first.start == next(mark.position for mark in trace.marks if mark.step == 1)
    assert second.stop == trace.marks[-1].position  # what ends after the last step is not the pass's
    assert [key[:2] for key in first.segments][:5] == [
        (1, Phase.DATA),
        (1, Phase.FORWARD),
        (1, Phase.BACKWARD),
        (1, Phase.OPTIMIZER),
        (2, Phase.DATA),
    ]
    assert sum(event > 0 for event in trace.events[first.start : first.stop]) == sum(
        len(segment.requests) for segment in first.segments.values()
    )


def test_a_fate_says_where_a_request_ends() -> None:
    _, (first, second) = passes_of(Planted(), (2, 3))
    for one in (first, second):
        forward = one.segments[2, Phase.FORWARD, 0].requests
        assert forward[0] == Request(500 * one.batch_size, HERE, 0)
        assert forward[1].fate not in (HERE, OUTLIVES)  # an activation
        data = [one.segments[step, Phase.DATA, 0].requests[0].fate for step in (1, 2, 3)]
        assert data[0] == data[1] != OUTLIVES
        assert data[2] == OUTLIVES
    fates = [[r.fate for s in one.segments.values() for r in s.requests] for one in (first, second)]
    assert fates[0] == fates[1]


@pytest.mark.parametrize("leftovers", list(Leftovers))
def test_what_outlives_a_pass_does_so_whenever_it_is_let_go(leftovers: Leftovers) -> None:
    _, passes = passes_of(Planted(leftovers=leftovers), (2, 3, 5))
    for one in passes:
        assert {r.fate for r in one.segments[1, Phase.OPTIMIZER, 0].requests[:-1]} == {OUTLIVES}


def test_repeated_phases_of_one_step_are_told_apart() -> None:
    phases = [Phase.FORWARD, Phase.BACKWARD, Phase.FORWARD, Phase.BACKWARD]
    marks = tuple(Mark(position, phase, 1, 2) for position, phase in enumerate(phases))
    (only,) = cut(Trace((1, 2, 3, 4), (), (1, 2, 3, 4), marks, ()))
    assert [(key[1:], segment.requests[0].size) for key, segment in only.segments.items()] == [
        ((Phase.FORWARD, 0), 1),
        ((Phase.BACKWARD, 0), 2),
        ((Phase.FORWARD, 1), 3),
        ((Phase.BACKWARD, 1), 4),
    ]


def test_a_mark_without_a_step_between_two_steps_is_part_of_the_pass() -> None:
    marks = (
        Mark(0, Phase.BUILD, 0, 0),
        Mark(1, Phase.FORWARD, 1, 2),
        Mark(2, Phase.EVALUATE, 0, 2),
        Mark(3, Phase.FORWARD, 2, 2),
        Mark(4, Phase.BUILD, 0, 0),
    )
    (only,) = cut(Trace((1, 2, 3, 4, 5), (), (1, 2, 3, 4, 5), marks, ()))
    assert list(only.segments) == [(1, Phase.FORWARD, 0), (1, Phase.EVALUATE, 0), (2, Phase.FORWARD, 0)]
    assert (only.start, only.stop) == (1, 4)


def test_two_passes_at_the_same_size_are_two() -> None:
    _, passes = passes_of(Planted(), (3, 3))
    assert [one.batch_size for one in passes] == [3, 3]


def test_a_trace_without_training_has_no_passes() -> None:
    assert cut(Trace((), (), (), (), ())) == []
    assert cut(Trace((5,), (), (1, -1), (Mark(0, Phase.BUILD, 0, 0),), ())) == []


# Aligning


@pytest.mark.parametrize("sizes", [(2, 3), (8, 16), (3, 100), (24, 128)])
def test_the_same_program_is_paired_index_by_index(sizes: tuple[int, int]) -> None:
    small, large = (one_segment(size, layers(size)) for size in sizes)
    assert align(small, large) == {index: index for index in range(80)}


def test_the_same_program_is_paired_however_long_it_is_before_the_first_difference() -> None:
    """A stretch of this length would not be searched for pairs that nothing but their place speaks for."""
    small, large = (one_segment(size, layers(size, 80)) for size in (2, 3))
    assert align(small, large) == {index: index for index in range(320)}


def test_what_appears_in_the_larger_pass_has_no_counterpart() -> None:
    requests = layers(8)
    for at in (60, 33, 32, 5, 0):
        requests.insert(at, brief(123_457))
    found = align(one_segment(2, layers(2)), one_segment(8, requests))
    new = {0, 6, 34, 36, 64}
    assert [requests[index].size for index in sorted(new)] == [123_457] * 5
    assert set(found) == set(range(85)) - new
    assert list(found.values()) == list(range(80))


def test_what_vanishes_from_the_larger_pass_leaves_the_rest_paired() -> None:
    requests = layers(2)
    for at in (70, 40, 39, 1):
        requests.insert(at, brief(99_991))
    found = align(one_segment(2, requests), one_segment(8, layers(8)))
    assert set(found) == set(range(80))
    assert all(requests[left].size != 99_991 for left in found.values())


def test_a_constant_request_of_twice_the_size_is_not_taken_for_a_proportional_one_at_twice_the_batch() -> None:
    def twins(batch_size: int) -> list[Request]:
        return [request for _ in range(15) for request in (brief(1000 * batch_size), brief(16_000), brief(8000))]

    requests = twins(16)
    del requests[20], requests[9]
    found = align(one_segment(8, twins(8)), one_segment(16, requests))
    expected = [index for index in range(45) if index not in (9, 21)]
    assert len(found) == 43
    matched = sum(found[right] == left for right, left in enumerate(expected))
    assert matched >= 40  # the neighbours of what was taken out may be ambiguous


def test_a_workspace_that_grows_by_its_own_rule_is_paired_by_its_place() -> None:
    small, large = layers(16), layers(24)
    for at in (60, 32, 4):
        small.insert(at, brief(19_000_000))
        large.insert(at, brief(27_500_000))
    assert align(one_segment(16, small), one_segment(24, large)) == {index: index for index in range(83)}


def test_requests_that_end_in_different_places_are_never_paired() -> None:
    small, large = layers(2), layers(3)
    small[41], large[41] = brief(small[41].size), kept(large[41].size)
    found = align(one_segment(2, small), one_segment(3, large))
    assert 41 not in found
    assert len(found) == 79


@pytest.mark.parametrize(("length", "count"), [(60, 20), (300, 20), (300, 150)])
def test_a_long_stretch_that_only_one_pass_has_is_skipped(length: int, count: int) -> None:
    requests = layers(8, count)
    requests[40:40] = [brief(1_000_003 + 7 * index) for index in range(length)]
    found = align(one_segment(2, layers(2, count)), one_segment(8, requests))
    assert found == {index + length * (index >= 40): index for index in range(4 * count)}


def test_of_two_requests_of_the_right_size_the_one_that_lives_as_long_is_taken() -> None:
    small, large = layers(2), layers(3)
    small[40:40] = [brief(5_000_000, span=40)]
    large[40:40] = [brief(5_000_000), brief(5_000_000, span=45)]
    found = align(one_segment(2, small), one_segment(3, large))
    assert 40 not in found
    assert found[41] == 40


@pytest.mark.parametrize("at", [0, 1])
def test_of_two_workspaces_the_one_that_grew_plausibly_is_taken(at: int) -> None:
    small, large = layers(16), layers(24)
    small[40:40] = [brief(10_000_000)]
    large[40:40] = [brief(30_000_000)]
    large.insert(40 + at, brief(14_000_000))
    assert align(one_segment(16, small), one_segment(24, large))[40 + at] == 40
    assert 41 - at not in align(one_segment(16, small), one_segment(24, large))


def test_many_changes_are_followed_from_window_to_window() -> None:
    small, large = layers(8, 400), layers(16, 400)
    for layer in range(400):
        small[4 * layer] = brief(1_000_000 + 512 * layer)
        large[4 * layer] = brief(1_300_000 + 400 * layer)
    assert align(one_segment(8, small), one_segment(16, large)) == {index: index for index in range(1600)}


def test_passes_of_other_programs_have_little_in_common() -> None:
    other = [kept(1_000_003 + 977 * index) for index in range(700)]
    assert len(align(one_segment(2, layers(2, 150)), one_segment(8, other))) < 35  # by accident


@pytest.mark.parametrize("seed", range(25))
def test_pairs_never_cross_and_untouched_requests_find_each_other(seed: int) -> None:
    rng = random.Random(seed)
    low, high = sorted(rng.sample(range(2, 60), 2))
    small: list[tuple[int, Request]] = list(enumerate(layers(low)))
    large: list[tuple[int, Request]] = list(enumerate(layers(high)))
    for side in (small, large):
        for _ in range(rng.randrange(6)):
            side.insert(rng.randrange(len(side)), (-1, brief(rng.randrange(1_000_000, 9_000_000))))
        for _ in range(rng.randrange(3)):
            del side[rng.randrange(len(side))]
    found = align(one_segment(low, [r for _, r in small]), one_segment(high, [r for _, r in large]))
    pairs = sorted(found.items())
    assert [left for _, left in pairs] == sorted(set(found.values()))
    common = {name for name, _ in small} & {name for name, _ in large} - {-1}
    right = {(small[left][0], large[index][0]) for index, left in pairs}
    assert len({(name, name) for name in common} & right) >= len(common) - 4


def test_frees_in_another_order_change_nothing() -> None:
    _, (first, second) = passes_of(Planted(shuffled=True), (3, 7))
    shift = first.segments[1, Phase.DATA, 0].first - second.segments[1, Phase.DATA, 0].first
    assert align(first, second) == {index: index + shift for index in align(first, second)}
    assert len(align(first, second)) == sum(len(s.requests) for s in second.segments.values())


def test_a_step_that_only_the_larger_pass_took_is_compared_with_the_last() -> None:
    writer = Writer(Planted())
    writer.build()
    writer.train(2, steps=2)
    writer.train(5, steps=4)
    small, large = cut(writer.trace())
    forward = large.segments[4, Phase.FORWARD, 0]
    last = small.segments[2, Phase.FORWARD, 0]
    found = align(small, large)
    assert [found[forward.first + at] for at in range(len(forward.requests))] == [
        last.first + at for at in range(len(last.requests))
    ]


def test_the_planted_process_is_a_trace_that_ends_only_what_it_made() -> None:
    trace = trained(Planted(cache=4096, side_stream=True), (2, 3))
    made: set[int] = set()
    for event in trace.events:
        if event > 0:
            assert event == len(trace.sizes[:event])
            made.add(event)
        else:
            made.remove(-event)
    assert trace.passes == (PassPeaks(2, 3, 0, 0), PassPeaks(3, 3, 0, 0))
    assert len(made) == 6 + 1 + 1
