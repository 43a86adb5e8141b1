"""The batch finder where the allocator is recorded: three probes where the recording tells the truth.

Workloads and their limits are planted; brute force over the sizes says what is true.
"""

from collections.abc import Callable

import pytest

from autotune.memory.forecast import forecast
from autotune.model import Form, Phase, Reason
from autotune.search.verdict import Ending, why_nothing
from autotune.units import KIB, MIB
from tests.fakes import drive
from tests.unit.planted_device import PlantedDevice
from tests.unit.planted_searches import (
    EXPANDABLE,
    NARROW,
    NET,
    RECORDED,
    WIDE,
    Case,
    asked,
    each_sample_alone,
    failed,
    finder_for,
    found,
    sizes_recorded,
    twelve_layers,
)
from tests.unit.planted_workloads import Request, network, with_more

TRUE = [
    Case("network", NET, 360, 19),
    Case("network", NET, 580, 38),
    Case("network", NET, 740, 50),
    Case("network", NET, 580, 40, EXPANDABLE),
    Case("network", NET, 740, 54, EXPANDABLE),
    Case("wide", WIDE, 960, 4),
    Case("wide", WIDE, 920, 4, EXPANDABLE),
    Case("narrow", NARROW, 692, 140),
    Case("narrow", NARROW, 668, 141, EXPANDABLE),
    Case("no optimizer state", twelve_layers(192 * KIB, weight=8 * MIB, states=0), 740, 45),
    Case("mostly weights", twelve_layers(128 * KIB, weight=16 * MIB), 1340, 80),
    Case("evaluates", twelve_layers(192 * KIB, evaluates=True), 740, 39),
    Case("library workspace", with_more(NET, Request(born=Phase.FORWARD, constant=33 * MIB)), 740, 47),
    Case("batch by batch", twelve_layers(64 * KIB, pair=96 * KIB), 740, 62),
    Case("batch by batch", twelve_layers(64 * KIB, pair=96 * KIB), 740, 63, EXPANDABLE),
]


@pytest.mark.parametrize("case", TRUE, ids=str)
def test_three_probes_find_the_limit_where_the_recording_tells_the_truth(case: Case) -> None:
    device = case.device
    assert device.limits(2 * case.limit) == [case.limit]
    answer, history = found(device)
    assert (answer.max_batch, answer.refuted_at, answer.step, answer.holes) == (case.limit, case.limit + 1, 1, ())
    assert [probe.reason for probe in history] == RECORDED
    assert [probe.form for probe in history] == [Form.SHORT, Form.LONG, Form.LONG]
    assert failed(history) == 1
    assert sizes_recorded(history)[0][:2] == [2, 3]


@pytest.mark.parametrize("case", TRUE[1:5], ids=str)
def test_what_was_foretold_comes_out_to_the_byte(case: Case) -> None:
    answer, history = found(case.device)
    measured = history[1].measurement
    assert answer.prediction is not None
    assert answer.prediction.limit == answer.max_batch
    assert answer.prediction.recorded_up_to == sizes_recorded(history)[0][-1]
    assert answer.prediction.allocated_bytes == measured.peak_allocated_bytes
    assert answer.prediction.reserved_bytes == measured.peak_reserved_bytes


@pytest.mark.parametrize(("limit_mib", "limit", "refuted_at"), [(680, 40, 48), (700, 48, 56), (740, 48, 56)])
def test_multiples_of_eight_take_three_probes_as_well(limit_mib: int, limit: int, refuted_at: int) -> None:
    device = PlantedDevice(workload=NET, limit_bytes=limit_mib * MIB)
    assert device.limits(80, unit=8) == [limit]
    answer, history = found(device, finder_for(device, unit=8))
    assert (answer.max_batch, answer.refuted_at, answer.step) == (limit, refuted_at, 8)
    assert asked(history) == [(24, Reason.TRACE), (limit, Reason.PREDICTED), (refuted_at, Reason.REFUTE)]
    assert sizes_recorded(history) == [[16, 24]]


@pytest.mark.parametrize("bound", [40, 50])
def test_a_bound_up_to_the_limit_is_certified_at_once_and_nothing_refuted(bound: int) -> None:
    device = PlantedDevice(workload=NET, limit_bytes=740 * MIB)
    answer, history = found(device, finder_for(device, max_batch=bound))
    assert (answer.max_batch, answer.refuted_at, answer.limited_by) == (bound, None, "max_batch")
    assert asked(history)[1:] == [(bound, Reason.PREDICTED)]
    assert failed(history) == 0


def test_a_bound_right_above_the_limit_is_what_is_refuted() -> None:
    device = PlantedDevice(workload=NET, limit_bytes=740 * MIB)
    answer, history = found(device, finder_for(device, max_batch=51))
    assert (answer.max_batch, answer.refuted_at, answer.limited_by) == (50, 51, "device_memory")
    assert [probe.reason for probe in history] == RECORDED


def test_no_size_above_the_samples_of_the_data_set_is_recorded_or_asked() -> None:
    device = PlantedDevice(workload=NET, limit_bytes=740 * MIB)
    answer, history = found(device, finder_for(device, data=20))
    assert (answer.max_batch, answer.refuted_at, answer.limited_by) == (20, None, "data_set")
    assert asked(history)[1:] == [(20, Reason.PREDICTED)]
    assert sizes_recorded(history) == [[2, 3, 5]], "a third of the largest size, or a little less"


@pytest.mark.parametrize(
    ("bound", "reasons"),
    [
        (1, [Reason.START, Reason.CERTIFY]),
        (2, [Reason.START, Reason.GROW, Reason.CERTIFY]),
        (3, [Reason.TRACE, Reason.CERTIFY]),
        (4, [Reason.TRACE, Reason.PREDICTED]),
    ],
)
def test_nothing_is_recorded_where_two_sizes_have_no_room(bound: int, reasons: list[Reason]) -> None:
    device = PlantedDevice(workload=NET, limit_bytes=740 * MIB)
    answer, history = found(device, finder_for(device, max_batch=bound))
    assert answer.max_batch == bound
    assert [probe.reason for probe in history] == reasons


# Small limits


@pytest.mark.parametrize(
    ("limit_mib", "allocator", "limit", "expected"),
    [
        (400, "", 1, [(2, Reason.TRACE), (1, Reason.SHRINK), (1, Reason.CERTIFY)]),
        (600, "", 2, [(2, Reason.TRACE), (3, Reason.REFUTE), (2, Reason.CERTIFY)]),
        (600, EXPANDABLE, 2, [(2, Reason.TRACE), (3, Reason.REFUTE), (2, Reason.CERTIFY)]),
        (760, "", 3, [(3, Reason.TRACE), (4, Reason.REFUTE), (3, Reason.CERTIFY)]),
        (760, EXPANDABLE, 3, [(3, Reason.TRACE), (4, Reason.REFUTE), (3, Reason.CERTIFY)]),
        (960, "", 4, [(3, Reason.TRACE), (4, Reason.PREDICTED), (5, Reason.REFUTE)]),
        (1120, "", 5, [(3, Reason.TRACE), (5, Reason.PREDICTED), (6, Reason.REFUTE)]),
    ],
)
def test_a_limit_of_a_few_samples_takes_three_probes(
    limit_mib: int, allocator: str, limit: int, expected: list[tuple[int, Reason]]
) -> None:
    device = PlantedDevice(workload=WIDE, allocator=allocator, limit_bytes=limit_mib * MIB)
    assert device.limits(8) == [limit]
    answer, history = found(device)
    assert (answer.max_batch, answer.refuted_at) == (limit, limit + 1)
    assert asked(history) == expected


def test_a_recording_that_runs_out_of_memory_at_its_first_size_is_followed_by_one_sample() -> None:
    device = PlantedDevice(workload=WIDE, limit_bytes=240 * MIB)
    stop, history = drive(finder_for(device), device, device.budget)
    assert stop.answer is None
    assert asked(history) == [(2, Reason.TRACE), (1, Reason.SHRINK)]
    assert why_nothing(history) == (Ending.NOTHING_FITS, history[-1])


def test_a_model_that_does_not_fit_is_built_twice() -> None:
    device = PlantedDevice(workload=network(MIB, weight=900 * MIB), limit_bytes=700 * MIB)
    stop, history = drive(finder_for(device), device, device.budget)
    assert stop.answer is None
    assert asked(history) == [(2, Reason.TRACE), (1, Reason.SHRINK)]


# Sizes that are rejected


def only_multiples_of(multiple: int) -> Callable[[int], bool]:
    return lambda size: size % multiple != 0


def test_c15_even_sizes_only_are_recorded_again_at_even_ones() -> None:
    device = PlantedDevice(workload=NET, limit_bytes=578 * MIB)
    assert device.limits(60) == [37]
    device.rejects = only_multiples_of(2)
    answer, history = found(device)
    assert (answer.max_batch, answer.refuted_at, answer.step, answer.holes) == (36, 38, 2, ())
    assert asked(history) == [
        (3, Reason.TRACE),
        (1, Reason.LEGAL_SIZE),
        (2, Reason.LEGAL_SIZE),
        (10, Reason.TRACE),
        (36, Reason.PREDICTED),
        (38, Reason.REFUTE),
    ]
    assert sizes_recorded(history) == [[2], [4, 6, 10]]


@pytest.mark.parametrize(
    ("multiple", "limit", "refuted_at", "probes", "recorded"),
    [(2, 50, 52, 6, [[2], [4, 6, 14]]), (3, 48, 51, 9, [[6, 9, 15]]), (8, 48, 56, 8, [[16, 24]])],
)
def test_c15_only_multiples_are_legal_below_a_limit_of_50(
    multiple: int, limit: int, refuted_at: int, probes: int, recorded: list[list[int]]
) -> None:
    device = PlantedDevice(workload=NET, limit_bytes=740 * MIB, rejects=only_multiples_of(multiple))
    answer, history = found(device)
    assert (answer.max_batch, answer.refuted_at, answer.step) == (limit, refuted_at, multiple)
    assert answer.limited_by == "device_memory"
    assert sizes_recorded(history) == recorded
    assert [probe.reason for probe in history][-3:] == RECORDED
    assert len(history) <= probes


def test_c16_a_workload_that_rejects_one_sample_is_not_asked_for_one() -> None:
    device = PlantedDevice(workload=NET, limit_bytes=740 * MIB, rejects=lambda size: size == 1)
    answer, history = found(device)
    assert (answer.max_batch, answer.refuted_at, answer.step) == (50, 51, 1)
    assert [probe.reason for probe in history] == RECORDED


def test_a_minimum_above_what_is_recorded_leaves_the_search_to_the_hull() -> None:
    device = PlantedDevice(workload=NET, limit_bytes=740 * MIB, rejects=lambda size: size < 4)
    answer, history = found(device)
    assert (answer.max_batch, answer.refuted_at, answer.step) == (50, 51, 1)
    assert (answer.prediction, sizes_recorded(history)) == (None, [])
    assert len(history) <= 9


@pytest.mark.parametrize(("size", "probes"), [(2, 11), (3, 14)])
def test_a_recording_that_met_a_rejected_size_is_not_repeated_at_the_same_sizes(size: int, probes: int) -> None:
    device = PlantedDevice(workload=NET, limit_bytes=740 * MIB, rejects=lambda asked: asked == size)
    answer, history = found(device)
    assert (answer.max_batch, answer.refuted_at, answer.step) == (50, 51, 1)
    assert sum(probe.reason is Reason.TRACE for probe in history) == 1
    assert len(history) <= probes


# A recording that cannot be used


def test_a_recording_that_cannot_be_aligned_leaves_the_search_to_the_hull() -> None:
    device = PlantedDevice(workload=each_sample_alone(192 * KIB), limit_bytes=740 * MIB)
    answer, history = found(device)
    assert device.limits(80) == [answer.max_batch]
    assert sizes_recorded(history) == [[2, 3, 17]]
    trace = history[0].trace
    assert trace is not None
    assert "at most 73% were found again" in str(forecast(trace, "", device.cap_bytes))
    assert answer.prediction is None
    assert len(history) <= 8


@pytest.mark.parametrize(
    ("allocator", "records"), [("throw_on_cudamalloc_oom:True", True), ("backend:cudaMallocAsync", False)]
)
def test_allocator_options_without_a_replay_leave_the_search_to_the_hull(allocator: str, records: bool) -> None:
    device = PlantedDevice(workload=NET, limit_bytes=740 * MIB, allocator=allocator, records=records)
    answer, history = found(device)
    assert (answer.max_batch, answer.refuted_at, answer.prediction) == (50, 51, None)
    assert device.limits(80) == [50]
    assert history[0].reason is Reason.TRACE
    assert len(history) <= 8
