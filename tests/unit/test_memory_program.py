"""Programs learned from planted traces: exact where requests follow lines, flagged and bounded where they do not."""

from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction

import pytest

from autotune.memory.history import peak_bytes
from autotune.memory.lines import Curve, Kind, fit
from autotune.memory.program import CannotAlign, Program, program
from autotune.model import Mark, PassPeaks, Phase, Trace
from autotune.units import MIB
from tests.unit.planted_passes import STEPS, Leftovers, Planted, Writer, trained


def fresh_peak(planted: Planted, batch_size: int) -> int:
    trace = trained(planted, [batch_size])
    return peak_bytes(trace.events, trace.sizes)


def foretold_peak(learned: Program, batch_size: int) -> int:
    return peak_bytes(learned.events, learned.sizes_at(batch_size))


def made_and_ended(sizes: Sequence[int], events: Sequence[int]) -> list[int]:
    """Sizes made (positive) and ended (negative), which no numbering hides."""
    return [sizes[event - 1] if event > 0 else -sizes[-event - 1] for event in events]


def history_of(planted: Planted, batch_size: int) -> list[int]:
    """Of a fresh process, without what happens after the last step."""
    trace = trained(planted, [batch_size])
    return made_and_ended(trace.sizes, trace.events[: trace.marks[-1].position])


def only_kind(learned: Program, size: int) -> Kind:
    """Of all requests that have this size in the skeleton's pass."""
    sizes = learned.sizes_at(learned.skeleton_batch)
    kinds = {kind for kind, one in zip(learned.kinds, sizes, strict=True) if one == size}
    assert len(kinds) == 1, kinds
    return kinds.pop()


# Whole programs


@pytest.mark.parametrize("batch_sizes", [(2, 3), (2, 3, 7), (8, 16), (2, 3, 24, 60), (2, 3, 5, 7, 11)])
@pytest.mark.parametrize("leftovers", list(Leftovers))
def test_a_program_of_lines_is_what_a_fresh_process_does(batch_sizes: tuple[int, ...], leftovers: Leftovers) -> None:
    planted = Planted(leftovers=leftovers)
    learned = program(trained(planted, batch_sizes))
    for batch_size in (1, *batch_sizes, 37, 64, 1000):
        assert made_and_ended(learned.sizes_at(batch_size), learned.events) == history_of(planted, batch_size)
    assert learned.skeleton_batch == batch_sizes[-1]
    assert set(learned.kinds) == {Kind.CONSTANT, Kind.AFFINE}
    assert learned.uncertain_bytes(1000) == (0, 0)


def test_the_marks_are_those_of_a_fresh_process() -> None:
    learned = program(trained(Planted(cache=8 * MIB), (2, 3)))
    fresh = trained(Planted(cache=8 * MIB), [3])
    exit_mark = fresh.marks[-1]
    assert [(mark.phase, mark.step, mark.batch_size) for mark in learned.marks] == [
        (mark.phase, mark.step, mark.batch_size) for mark in fresh.marks[:-1]
    ]
    # The cache is made as the first step begins, so what follows in that step is one event later.
    late = {mark.position for mark in fresh.marks if mark.step == 1 and mark.phase is Phase.FORWARD}
    assert [mark.position for mark in learned.marks] == [
        mark.position + (mark.position in late) for mark in fresh.marks[:-1]
    ]
    assert len(learned.events) == exit_mark.position


def test_caches_of_earlier_passes_are_there_from_the_first_step_on() -> None:
    learned = program(trained(Planted(cache=8 * MIB), (2, 3, 5)))
    sizes = learned.sizes_at(40)
    assert sizes.count(8 * MIB) == 1
    number = sizes.index(8 * MIB) + 1
    first_step = next(mark.position for mark in learned.marks if mark.step == 1)
    assert learned.events[first_step] == number
    assert -number not in learned.events
    assert sorted(sizes) == sorted(size for size in history_of(Planted(cache=8 * MIB), 40) if size > 0)


def test_what_the_first_pass_ended_of_the_model_is_gone_when_the_only_pass_begins() -> None:
    planted = Planted(temporary=True)
    learned = program(trained(planted, (2, 3)))
    first_step = next(mark.position for mark in learned.marks if mark.step == 1)
    sizes = learned.sizes_at(3)
    assert made_and_ended(sizes, learned.events)[first_step] == -99_000
    assert Counter(made_and_ended(sizes, learned.events)) == Counter(history_of(planted, 3))


def test_frees_keep_the_order_of_the_largest_pass() -> None:
    planted = Planted(shuffled=True)
    learned = program(trained(planted, (2, 3, 7)))
    assert made_and_ended(learned.sizes_at(7), learned.events) == history_of(planted, 7)
    assert foretold_peak(learned, 50) == fresh_peak(planted, 50)


def test_streams_stay_with_their_allocations() -> None:
    learned = program(trained(Planted(side_stream=True, cache=MIB), (2, 3)))
    sizes = learned.sizes_at(3)
    assert [size for size, stream in zip(sizes, learned.streams, strict=True) if stream] == [600 * 3] * STEPS
    assert program(trained(Planted(), (2, 3))).streams == ()


def test_what_only_the_largest_pass_ends_of_the_model_is_ended_there() -> None:
    marks = (Mark(0, Phase.BUILD, 0, 0), Mark(3, Phase.FORWARD, 1, 2), Mark(6, Phase.FORWARD, 1, 5))
    # Two weights; two batches and gradients, of which the second pass ends the first pass's, and a weight with them.
    events = (1, 2, -2, 3, 4, -3, 5, 6, -1, -4, -5)
    peaks = (PassPeaks(2, 1, 0, 0), PassPeaks(5, 1, 0, 0))
    learned = program(Trace((7000, 10, 2000, 9000, 5000, 9000), (), events, marks, peaks))
    assert made_and_ended(learned.sizes_at(5), learned.events) == [7000, 10, -10, 5000, 9000, -7000, -5000]


def test_no_size_falls_below_one_byte() -> None:
    planted = Planted(saved=lambda batch, layer: max(300 * batch - 500, 1))
    learned = program(trained(planted, (2, 3)))
    assert min(learned.sizes_at(1)) == 1


def test_the_order_of_the_passes_in_the_trace_does_not_matter() -> None:
    one, other = (program(trained(Planted(), sizes)) for sizes in ((2, 3, 7), (7, 2, 3)))
    assert one.skeleton_batch == other.skeleton_batch == 7
    assert one.sizes_at(20) == other.sizes_at(20)
    assert one.events == other.events


# Workspaces


def test_a_workspace_that_only_the_largest_pass_makes_is_kept_and_in_doubt() -> None:
    planted = Planted(workspace=lambda batch, layer: 5_000_011 if batch > 5 and layer == 6 else 0)
    learned = program(trained(planted, (2, 3, 7)))
    assert only_kind(learned, 5_000_011) is Kind.UNMATCHED
    assert learned.sizes_at(70).count(5_000_011) == STEPS
    assert foretold_peak(learned, 70) == fresh_peak(planted, 70)
    lower, higher = learned.uncertain_bytes(70)
    assert lower == 0
    assert higher == pytest.approx(9 * 5_000_011, rel=1e-3)
    assert learned.uncertain_bytes(7) == (0, 0)


def test_a_new_workspace_of_whole_bytes_per_sample_is_expected_to_grow_with_the_batch() -> None:
    planted = Planted(workspace=lambda batch, layer: 300_001 * batch if batch > 5 else 0)
    learned = program(trained(planted, (2, 3, 7)))
    assert only_kind(learned, 300_001 * 7) is Kind.UNMATCHED
    assert foretold_peak(learned, 70) == fresh_peak(planted, 70)
    lower, higher = learned.uncertain_bytes(70)
    assert higher == 0
    assert lower > 0


def test_a_workspace_that_vanishes_from_the_largest_pass_is_not_foretold() -> None:
    planted = Planted(workspace=lambda batch, layer: 0 if batch > 5 else 100 * MIB)
    learned = program(trained(planted, (2, 3, 7)))
    assert max(learned.sizes_at(70)) < 100 * MIB
    assert foretold_peak(learned, 70) == fresh_peak(planted, 70)


@pytest.mark.parametrize("batch_sizes", [(8, 20, 64), (8, 16, 24, 128), (8, 64, 128)])
def test_a_workspace_that_saturates_is_not_extrapolated(batch_sizes: tuple[int, ...]) -> None:
    planted = Planted(workspace=lambda batch, layer: min(4 * MIB * batch, 132 * MIB))
    learned = program(trained(planted, batch_sizes))
    assert only_kind(learned, 132 * MIB) is Kind.SATURATED
    for batch_size in (*batch_sizes, 200, 1000):
        assert foretold_peak(learned, batch_size) == fresh_peak(planted, batch_size)
    assert learned.uncertain_bytes(1000)[0] == 0


def test_reductions_share_the_bound_that_one_of_them_was_seen_to_reach() -> None:
    planted = Planted(
        workspace=lambda batch, layer: min(layer * MIB * batch, 132 * MIB), counters=lambda batch, layer: 24
    )
    learned = program(trained(planted, (8, 24)))  # layer 6 has reached it, the others have not
    assert only_kind(learned, 132 * MIB) is Kind.SATURATED
    assert only_kind(learned, 24 * MIB) is Kind.AFFINE
    assert foretold_peak(learned, 400) == fresh_peak(planted, 400)


def test_a_reduction_keeps_a_bound_of_its_own() -> None:
    """Rounding to whole slices moves it a little from one to the next."""
    planted = Planted(workspace=lambda batch, layer: min(layer * batch, 132 - layer) * MIB, counters=lambda *_: 24)
    learned = program(trained(planted, (8, 64)))  # layers 1 and 2 have not reached it
    large = [size // MIB for size in learned.sizes_at(400) if size > 100 * MIB]
    assert large == [126, 127, 128, 129, 129, 129] * STEPS


@pytest.mark.parametrize(
    ("counters", "kind"), [(4, Kind.SATURATED), (65_536, Kind.SATURATED), (65_540, Kind.AFFINE), (26, Kind.AFFINE)]
)
def test_only_a_few_whole_counters_show_a_reduction(counters: int, kind: Kind) -> None:
    planted = Planted(workspace=lambda batch, layer: min(4 * MIB * batch, 132 * MIB), counters=lambda *_: counters)
    assert only_kind(program(trained(planted, (8, 64))), 132 * MIB) is kind


def test_a_reduction_without_a_bound_in_sight_is_extrapolated_and_may_be_smaller() -> None:
    planted = Planted(workspace=lambda batch, layer: min(4 * MIB * batch, 132 * MIB), counters=lambda *_: 24)
    learned = program(trained(planted, (2, 3, 8)))
    lower, _ = learned.uncertain_bytes(100)
    assert foretold_peak(learned, 100) > fresh_peak(planted, 100)
    assert foretold_peak(learned, 100) - lower <= fresh_peak(planted, 100)


def test_a_workspace_that_jumps_is_flagged_and_bounded() -> None:
    def jumps(batch_size: int, layer: int) -> int:
        return (5 * MIB + 70_001 * batch_size) * (3 if batch_size > 20 else 1)

    learned = program(trained(Planted(workspace=jumps), (8, 16, 24)))
    assert only_kind(learned, jumps(24, 1)) is Kind.UNEVEN
    lower, higher = learned.uncertain_bytes(100)
    truth = fresh_peak(Planted(workspace=jumps), 100)
    assert foretold_peak(learned, 100) - lower <= truth <= foretold_peak(learned, 100) + higher


# Requests that stay


def test_a_matrix_of_batch_by_batch_is_flagged_and_followed() -> None:
    planted = Planted(saved=lambda batch, layer: 4 * batch * batch * 1024 if layer == 3 else 0)
    learned = program(trained(planted, (2, 3, 24)))
    assert only_kind(learned, 4 * 24 * 24 * 1024) is Kind.CURVED
    assert learned.kinds.count(Kind.CURVED) == STEPS
    assert foretold_peak(learned, 96) == fresh_peak(planted, 96)


def test_two_passes_show_growth_beyond_the_batch_but_not_how_it_goes_on() -> None:
    planted = Planted(saved=lambda batch, layer: 4 * batch * batch * 1024 if layer == 3 else 0)
    learned = program(trained(planted, (8, 24)))
    assert only_kind(learned, 4 * 24 * 24 * 1024) is Kind.CURVED
    truth = fresh_peak(planted, 96)
    assert foretold_peak(learned, 96) < truth <= foretold_peak(learned, 96) + learned.uncertain_bytes(96)[1]


def test_a_saved_tensor_padded_to_eight_samples_is_flagged_and_bounded() -> None:
    def padded(batch_size: int, layer: int) -> int:
        return -(-batch_size // 8) * 8 * 50_000

    learned = program(trained(Planted(saved=padded), (2, 3, 24)))
    assert only_kind(learned, padded(24, 1)) is Kind.CURVED
    truth = fresh_peak(Planted(saved=padded), 90)
    lower, higher = learned.uncertain_bytes(90)
    assert foretold_peak(learned, 90) - lower <= truth <= foretold_peak(learned, 90) + higher
    assert foretold_peak(learned, 96) == fresh_peak(Planted(saved=padded), 96)


def test_a_tensor_only_the_largest_pass_saves_is_flagged() -> None:
    planted = Planted(saved=lambda batch, layer: 64_007 * batch if batch > 5 else 0)
    learned = program(trained(planted, (2, 3, 7)))
    assert only_kind(learned, 64_007 * 7) is Kind.UNMATCHED
    assert foretold_peak(learned, 70) == fresh_peak(planted, 70)


# Passes that do not agree


def test_a_pass_of_another_program_is_left_out() -> None:
    writer = Writer(Planted())
    writer.build()
    writer.train(3)
    writer.train(5)
    trace = writer.trace()
    alien = tuple(range(len(trace.sizes) + 1, len(trace.sizes) + 201))
    mark = Mark(len(trace.events), Phase.FORWARD, 1, 2)
    with_alien = Trace(
        trace.sizes + tuple(1_000_003 + 977 * number for number in alien),
        (),
        trace.events + alien,
        (*trace.marks, mark),
        (*trace.passes, PassPeaks(2, 1, 0, 0)),
    )
    assert program(with_alien).sizes_at(50) == program(trace).sizes_at(50)


def test_a_pass_that_shares_only_half_is_left_out() -> None:
    sizes: list[int] = []
    events: list[int] = []
    marks = []
    for batch_size in (2, 3, 5):
        marks.append(Mark(len(events), Phase.FORWARD, 1, batch_size))
        for at in range(200):
            alien = batch_size == 2 and at >= 100  # kept, where the others end at once
            sizes.append(17 * MIB if alien else (100_003 + 7919 * at) * (batch_size + (batch_size == 2)))
            events += [len(sizes)] if alien else [len(sizes), -len(sizes)]
    peaks = tuple(PassPeaks(batch_size, 1, 0, 0) for batch_size in (2, 3, 5))
    learned = program(Trace(tuple(sizes), (), tuple(events), tuple(marks), peaks))
    assert set(learned.kinds) == {Kind.CONSTANT, Kind.AFFINE}


def test_passes_without_anything_in_common_cannot_be_aligned() -> None:
    events = tuple(range(1, 401))
    sizes = tuple(1_000_003 + 7919 * number for number in events)
    marks = (Mark(0, Phase.FORWARD, 1, 2), Mark(200, Phase.BACKWARD, 1, 5))
    with pytest.raises(CannotAlign, match="of the 200 allocations at batch size 5, at most 0% were found again"):
        program(Trace(sizes, (), events, marks, (PassPeaks(2, 1, 0, 0), PassPeaks(5, 1, 0, 0))))


@pytest.mark.parametrize("batch_sizes", [(), (3,), (3, 3)])
def test_fewer_than_two_sizes_cannot_be_aligned(batch_sizes: tuple[int, ...]) -> None:
    with pytest.raises(CannotAlign, match="two are needed"):
        program(trained(Planted(), batch_sizes))


def test_a_pass_that_was_cut_short_is_not_used() -> None:
    writer = Writer(Planted())
    writer.build()
    writer.train(2)
    writer.train(3)
    whole = writer.trace()
    writer.train(50, steps=1, complete=False)
    assert program(writer.trace()).skeleton_batch == 3
    assert program(writer.trace()).sizes_at(20) == program(whole).sizes_at(20)


# Single rules


@pytest.mark.parametrize("brief", [True, False])
@pytest.mark.parametrize(
    ("size", "batch_sizes"),
    [
        (lambda b: 777, (2, 3)),
        (lambda b: 1000 * b, (2, 3)),
        (lambda b: 1000 * b + 123_456, (2, 3, 20)),
        (lambda b: 3 * b + 1, (8, 16, 24)),
        (lambda b: 12_884_901_888 * b, (2, 7, 11)),
    ],
)
def test_lines_are_exact(size: Callable[[int], int], batch_sizes: tuple[int, ...], brief: bool) -> None:
    rule = fit([(batch_size, size(batch_size)) for batch_size in batch_sizes], brief=brief)
    assert rule.kind is (Kind.CONSTANT if size(2) == size(3) else Kind.AFFINE)
    assert all(rule.likely.at(batch_size) == size(batch_size) for batch_size in (1, *batch_sizes, 30, 10_000))
    assert not rule.is_doubtful


@pytest.mark.parametrize(
    ("points", "brief", "kind", "at_100"),
    [
        ([(8, 1_000_000)], True, Kind.UNMATCHED, 12_500_000),
        ([(8, 1_000_001)], False, Kind.UNMATCHED, 1_000_001),
        ([(8, 40_000), (16, 80_000), (24, 80_000)], True, Kind.SATURATED, 80_000),
        ([(8, 40_000), (16, 80_000), (24, 90_000)], True, Kind.SATURATED, 90_000),
        ([(8, 80_000), (16, 40_000)], True, Kind.UNEVEN, 40_000),
        ([(8, 40_000), (16, 160_000)], True, Kind.UNEVEN, 1_000_000),
        ([(8, 80_000), (16, 40_000)], False, Kind.CURVED, 40_000),
        ([(8, 640_000), (16, 2_560_000), (24, 5_760_000)], False, Kind.CURVED, 100_000_000),
    ],
)
def test_what_is_not_on_a_line_has_a_kind_and_bounds(
    points: list[tuple[int, int]], brief: bool, kind: Kind, at_100: int
) -> None:
    rule = fit(points, brief=brief)
    assert (rule.kind, rule.likely.at(100)) == (kind, at_100)
    assert rule.is_doubtful
    assert rule.least.at(100) <= at_100 <= rule.most.at(100)
    for curve in (rule.likely, rule.least, rule.most):
        assert curve.at(points[-1][0]) == points[-1][1]


def test_two_points_of_a_brief_request_with_an_offset_are_a_line_in_doubt() -> None:
    rule = fit([(16, 500_000), (24, 600_000)], brief=True)
    assert rule.kind is Kind.AFFINE
    assert [curve.at(100) for curve in (rule.least, rule.likely, rule.most)] == [600_000, 1_550_000, 2_500_000]
    assert not fit([(16, 500_000), (24, 600_000)], brief=False).is_doubtful
    assert not fit([(8, 400_000), (16, 500_000), (24, 600_000)], brief=True).is_doubtful


def test_fractions_of_a_byte_are_rounded_up() -> None:
    assert Curve(3, 10, Fraction(1, 3)).at(4) == 11
    assert Curve(3, 10, Fraction(1, 3)).at(6) == 11
    assert Curve(3, 10, Fraction(1, 3)).at(2) == 10
    assert Curve(3, 10, Fraction(5), cap=12).at(4) == 12


def test_peaks_count_whole_blocks() -> None:
    assert peak_bytes([1, 2, -1, 3], [1, 513, 2000]) == 1024 + 2048
    assert peak_bytes([], []) == 0
