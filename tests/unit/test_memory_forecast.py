"""What is foretold from a recording, and how probes that disagree correct it."""

from collections import defaultdict
from dataclasses import replace
from functools import cache
from itertools import pairwise

import pytest

from autotune.memory.allocator_config import Unreplayable
from autotune.memory.explain import by_event
from autotune.memory.forecast import Correction, Forecast, Seen, forecast, learn
from autotune.memory.program import Program
from autotune.model import Form, Phase, Question, Reason, Settings, Trace
from autotune.units import KIB, MIB
from tests.unit.planted_device import PlantedDevice, run
from tests.unit.planted_passes import Planted, trained
from tests.unit.planted_workloads import Request, Workload, network, with_more

EXPANDABLE = "expandable_segments:True"
NET = network(*(192 * KIB * width for width in (5, 3, 7, 2, 6, 4, 8, 3)), weight=MIB, batch=192 * KIB)
CAP = 600 * MIB


def recording(workload: Workload = NET) -> Trace:
    device = PlantedDevice(workload=workload, limit_bytes=CAP, outside_bytes=0)
    asked = Question(
        batch_size=2, form=Form.SHORT, reason=Reason.TRACE, settings=Settings(), trace_unit=1, trace_largest=1000
    )
    trace = device.probe(asked, device.budget, 0).trace
    assert trace is not None
    return trace


RECORDING = recording()


@cache
def foretold(allocator: str = "", cap_bytes: int = CAP, *, varies: bool = False) -> Forecast:
    known = forecast(RECORDING, allocator, cap_bytes, varies)
    assert isinstance(known, Forecast)
    return known


def true_limit(allocator: str, cap_bytes: int) -> int:
    device = PlantedDevice(workload=NET, allocator=allocator, limit_bytes=cap_bytes, outside_bytes=0)
    (limit,) = device.limits(120)
    return limit


# Sizes


@pytest.mark.parametrize("allocator", ["", EXPANDABLE])
@pytest.mark.parametrize("batch_size", [1, 8, 30, 60, 61, 62, 90])
def test_a_size_is_foretold_as_the_long_form_goes(batch_size: int, allocator: str) -> None:
    expected = foretold(allocator).expect(batch_size)
    truth = run(NET, allocator, CAP, batch_size, Form.LONG)
    assert expected.batch_size == batch_size
    assert expected.allocated_bytes == truth.process.allocated_bytes
    assert expected.reserved_bytes == truth.process.reserved_bytes
    assert expected.out_of_memory == truth.out_of_memory
    if not truth.out_of_memory:
        assert expected.thrashes == truth.thrashes(Form.LONG)
        assert expected.safe == (not truth.thrashes(Form.LONG))
    else:
        assert not expected.safe


def test_another_cap_can_be_asked_for() -> None:
    assert not foretold().expect(90).safe
    assert foretold().expect(90, 2 * CAP).safe
    assert foretold().expect(90, 2 * CAP).allocated_bytes > CAP


@pytest.mark.parametrize(("allocator", "mib"), [("", 380), (EXPANDABLE, 520)])
def test_thrashing_is_not_safe_and_no_out_of_memory(allocator: str, mib: int) -> None:
    cap = mib * MIB
    seen = foretold(allocator, cap).expect(true_limit(allocator, cap) + 1)
    assert (seen.out_of_memory, seen.thrashes, seen.safe) == (False, True, False)


# Limits


@pytest.mark.parametrize("allocator", ["", EXPANDABLE])
@pytest.mark.parametrize("mib", [300, 400, 600])
def test_the_largest_size_is_the_true_limit(mib: int, allocator: str) -> None:
    cap = mib * MIB
    assert foretold(allocator, cap).largest(1, 1 << 24) == true_limit(allocator, cap)
    assert foretold(allocator).largest(1, 1 << 24, lambda size: cap) == true_limit(allocator, cap), "under another cap"


@pytest.mark.parametrize("step", [2, 3, 8, 40])
def test_the_largest_size_is_a_multiple_of_the_step(step: int) -> None:
    limit = true_limit("", CAP)
    assert foretold().largest(step, 1 << 24) == limit // step * step


@pytest.mark.parametrize("bound", [1, 2, 3, 10, 40])
def test_the_largest_size_is_within_the_bound(bound: int) -> None:
    assert foretold().largest(1, bound) == bound
    assert foretold().largest(7, bound) == bound // 7 * 7


def test_where_nothing_fits_the_largest_size_is_none_at_all() -> None:
    assert foretold().largest(1, 1000, lambda size: 30 * MIB) == 0
    assert foretold().largest(200, 1000) == 0
    assert foretold().largest(8, 7) == 0


@pytest.mark.parametrize("batch_size", [4, 30, 62, 100])
def test_the_memory_needed_is_the_smallest_cap_that_does(batch_size: int) -> None:
    needed = foretold().needed_bytes(batch_size)
    assert foretold().expect(batch_size, needed).safe
    assert not foretold().expect(batch_size, needed - MIB).safe
    assert needed >= foretold().replay(batch_size, None).allocated_bytes


# From a trace


def test_a_program_is_learned_once_a_recording() -> None:
    assert learn(RECORDING) is learn(RECORDING)
    assert forecast(RECORDING, "", CAP) is forecast(RECORDING, "", CAP)
    assert isinstance(learn(RECORDING), Program)


def test_passes_that_have_too_little_in_common_are_said_not_to() -> None:
    one = trained(Planted(), [2])
    assert learn(one) == "complete passes at 1 batch sizes were recorded, two are needed"
    assert forecast(one, "", CAP) == learn(one)


def test_options_that_cannot_be_replayed_are_named() -> None:
    said = forecast(RECORDING, "backend:cudaMallocAsync", CAP)
    assert isinstance(said, str) and "cudaMallocAsync" in said
    program = learn(RECORDING)
    assert isinstance(program, Program)
    with pytest.raises(Unreplayable):
        Forecast(program, "backend:cudaMallocAsync", CAP)


def test_streams_are_replayed_apart() -> None:
    trace = trained(Planted(side_stream=True), (2, 3))
    one, two = forecast(replace(trace, streams=()), "", 1 << 40), forecast(trace, "", 1 << 40)
    assert isinstance(one, Forecast) and isinstance(two, Forecast)
    assert one.expect(1000).allocated_bytes == two.expect(1000).allocated_bytes
    assert one.expect(1000).reserved_bytes != two.expect(1000).reserved_bytes


# Lengths that vary


def requested(known: Forecast, batch_size: int) -> dict[int, list[int]]:
    """Bytes asked for, by step."""
    made: dict[int, list[int]] = defaultdict(list)
    sizes = known.sizes_at(batch_size)
    for event, mark in zip(known.run.events, by_event(known.run), strict=True):
        if event > 0:
            made[mark.step].append(sizes[event - 1])
    return made


def test_where_lengths_vary_steps_need_what_smaller_batches_need_before_the_last_ones_of_full_length() -> None:
    known = requested(foretold(varies=True), 100)
    sizes = [36, 81, 100, 74, 28, 71, 100, 47, 95, 100, 100, 100, 100, 100]
    steps = {step: requested(foretold(), size)[min(step, 8)] for step, size in enumerate(sizes, 1)}
    assert known == {0: requested(foretold(), 100)[0], **steps}


def test_between_whole_samples_requests_lie_on_a_line() -> None:
    low, high = (requested(foretold(), size)[2] for size in (40, 41))
    assert low != high
    assert requested(foretold(varies=True), 50)[2] == [a + (b - a) // 2 for a, b in zip(low, high, strict=True)]


def test_where_lengths_vary_each_sequence_and_the_full_length_begin_with_nothing_cached() -> None:
    steps = foretold(varies=True).replay(60, None).steps
    assert [after.step for before, after in pairwise(steps) if after.reserved_bytes < before.reserved_bytes] == [4, 11]


@pytest.mark.parametrize(("mib", "batch_size", "last", "thrashes"), [(550, 60, 12, False), (384, 40, 13, True)])
def test_where_lengths_vary_the_last_two_steps_are_held_to_be_steady(
    mib: int, batch_size: int, last: int, thrashes: bool
) -> None:
    known = foretold(cap_bytes=mib * MIB, varies=True)
    seen = known.replay(batch_size, mib * MIB)
    assert seen.out_of_memory is None
    assert max(step.step for step in seen.steps if step.retries) == last
    assert known.expect(batch_size).thrashes == thrashes


# Corrections


def told(batch_size: int) -> int:
    return foretold().expect(batch_size, 2 * CAP).allocated_bytes


def cap_at(batch_size: int, *seen: Seen) -> int:
    return Correction.by(foretold(), seen).cap_at(batch_size)


def test_what_agrees_corrects_nothing() -> None:
    limit = true_limit("", CAP)
    for ran in ([], [Seen(limit, True, told(limit))], [Seen(limit, True, told(limit) * 10_004 // 10_000)]):
        assert cap_at(limit, *ran) == CAP
    assert cap_at(limit, Seen(limit, True, None)) == CAP
    assert cap_at(limit, Seen(limit + 1, False, None)) == CAP, "was foretold to fail"


@pytest.mark.parametrize("share", [0.985, 1.01, 1.1, 1.5])
def test_a_peak_foretold_wrongly_moves_the_cap_in_proportion(share: float) -> None:
    for size in (10, 40, 60):
        assert cap_at(size, Seen(40, True, int(told(40) * share))) == pytest.approx(CAP / share, rel=1e-6)


@pytest.mark.parametrize("share", [0.85, 0.9, 0.975])
def test_much_less_than_foretold_is_a_line_from_the_recording_through_what_ran(share: float) -> None:
    first = foretold().program.skeleton_batch
    ran = Seen(40, True, int(told(40) * share))
    assert ran.allocated_bytes is not None
    rise = (ran.allocated_bytes - told(first)) / (40 - first)
    for size in (20, 40, 60):
        needed = ran.allocated_bytes + rise * (size - 40)
        assert cap_at(size, ran) == pytest.approx(CAP * foretold().peak_bytes(size) / needed, rel=1e-6)


def test_less_than_was_recorded_is_no_line() -> None:
    """Nothing grows along a line that falls; every size would be safe."""
    first = foretold().program.skeleton_batch
    assert cap_at(400, Seen(40, True, told(first) - 1)) == CAP * told(40) // (told(first) - 1)


def test_the_largest_size_that_ran_counts() -> None:
    ran = [Seen(60, True, told(60) * 2), Seen(40, True, told(40) * 3), Seen(50, True, told(50))]
    assert cap_at(60, *ran) == CAP // 2


def test_a_size_that_failed_unexpectedly_is_foretold_to_fail_from_then_on() -> None:
    limit = true_limit("", CAP)
    for failed in (limit, limit - 1, limit - 10, limit // 2, 4):
        correction = Correction.by(foretold(), [Seen(failed, False, None)])
        cap = correction.cap_at(failed)
        assert cap < CAP
        assert not foretold().expect(failed, cap).safe
        assert foretold().largest(1, failed, correction.cap_at) < failed


def test_each_further_failure_doubles_the_margin() -> None:
    limit = true_limit("", CAP)
    seen: list[Seen] = []
    margins = []
    while len(seen) < 6:
        failed = foretold().largest(1, limit, Correction.by(foretold(), seen).cap_at)
        seen.append(Seen(failed, False, None))
        margins.append(1 - cap_at(failed, *seen) / foretold().needed_bytes(failed))
    assert margins == pytest.approx([0.001 * 2**n for n in range(6)], abs=1e-4)
    assert cap_at(limit, *seen[::-1]) == cap_at(limit, *seen), "the order does not matter"


def test_a_failure_is_judged_after_the_correction_by_what_ran() -> None:
    """Half as much again as foretold explains the failure, which then corrects no more."""
    limit = true_limit("", CAP)
    ran = Seen(30, True, told(30) * 3 // 2)
    assert cap_at(limit, ran, Seen(limit - 1, False, None)) == cap_at(limit, ran)


def test_where_the_truth_differs_by_a_share_the_correction_finds_its_limit() -> None:
    """A workspace of its own in every layer, only beyond the recording: what ran there says by how much."""
    extra = Request(born=Phase.FORWARD, ended=Phase.BACKWARD, per_sample=300 * KIB, from_size=40)
    workload = with_more(NET, extra)
    device = PlantedDevice(workload=workload, limit_bytes=CAP, outside_bytes=0)
    ran = run(workload, "", CAP, 45, Form.LONG)
    correction = Correction.by(foretold(), [Seen(45, True, ran.process.allocated_bytes)])
    assert abs(foretold().largest(1, 200, correction.cap_at) - device.limits(120)[-1]) <= 1
