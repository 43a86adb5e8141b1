"""The batch finder where the recording misses what happens near the limit: the answer stays exact, the way gets longer.

Workloads and their limits are planted; brute force over the sizes says what is true.
"""

from dataclasses import replace

import pytest

from autotune.memory.encoding import decode, encode
from autotune.model import ProbeResult
from autotune.units import KIB, MIB
from tests.fakes import After, drive
from tests.unit.planted_device import PlantedDevice
from tests.unit.planted_searches import (
    EXPANDABLE,
    NARROW,
    NET,
    Case,
    asked,
    each_sample_alone,
    failed,
    finder_for,
    found,
    kept,
    twelve_layers,
)
from tests.unit.planted_workloads import Workload, network, with_more

# The truth near the limit deviates from the recording


APPEARS = with_more(NARROW, kept(constant=10 * MIB, from_size=70))
APPEARS_LARGE = with_more(NARROW, kept(constant=32 * MIB, from_size=70))
APPEARS_GROWING = with_more(NARROW, kept(per_sample=320 * KIB, from_size=70))
SATURATES = with_more(NARROW, kept(per_sample=512 * KIB, at_most=32 * MIB))
SATURATES_LARGE = with_more(NARROW, kept(per_sample=MIB, at_most=70 * MIB))


@pytest.mark.parametrize(
    ("case", "predicted", "above_half", "failures"),
    [
        (Case("appears", APPEARS, 632, 127), 127, 2, 1),
        (Case("appears", APPEARS, 668, 139, EXPANDABLE), 141, 5, 2),
        (Case("appears large", APPEARS_LARGE, 632, 117), 127, 8, 4),
        (Case("appears large", APPEARS_LARGE, 692, 133), 140, 8, 4),
        (Case("appears large", APPEARS_LARGE, 644, 127, EXPANDABLE), 136, 6, 3),
        (Case("appears and grows", APPEARS_GROWING, 632, 115), 127, 7, 5),
        (Case("appears and grows", APPEARS_GROWING, 704, 140, EXPANDABLE), 152, 8, 3),
        (Case("saturates", SATURATES, 632, 117), 114, 4, 2),
        (Case("saturates", SATURATES, 656, 133, EXPANDABLE), 125, 8, 3),
        (Case("saturates large", SATURATES_LARGE, 692, 122), 111, 4, 1),
        (Case("saturates large", SATURATES_LARGE, 656, 123, EXPANDABLE), 112, 6, 1),
    ],
    ids=str,
)
def test_what_was_not_in_the_recording_costs_probes_but_never_the_limit(
    case: Case, predicted: int, above_half: int, failures: int
) -> None:
    """The counts are what the finder needs today: they may fall, and a change that raises one has to say why."""
    device = case.device
    assert device.limits(case.limit * 6 // 5, first=case.limit // 2) == [case.limit]
    answer, history = found(device)
    assert (answer.max_batch, answer.refuted_at, answer.holes) == (case.limit, case.limit + 1, ())
    assert answer.prediction is not None
    assert answer.prediction.limit == predicted, "as foretold before any correction"
    assert history[1].batch_size == predicted
    assert sum(probe.batch_size > case.limit / 2 for probe in history) <= above_half
    assert failed(history) <= failures


# Memory that small sizes say nothing of


def flat_up_to(size: int, slope: int) -> Workload:
    """Memory of heavy weights, and from some size on of the samples beyond it."""
    beyond = kept(constant=-slope * size, per_sample=slope, from_size=size + 1)
    return with_more(network(*[16 * KIB] * 4, weight=40 * MIB, batch=16 * KIB), beyond)


@pytest.mark.parametrize(
    ("case", "probes"),
    [
        (Case("quadratic", twelve_layers(64 * KIB, pair=MIB), 740, 22), 5),
        (Case("quadratic", twelve_layers(64 * KIB, pair=MIB), 740, 23, EXPANDABLE), 6),
        (Case("quadratic", twelve_layers(64 * KIB, pair=256 * KIB), 3000, 99), 11),
        (Case("threshold", flat_up_to(16, 11 * MIB), 2000, 95), 12),
        (Case("threshold", flat_up_to(16, 11 * MIB), 1000, 51, EXPANDABLE), 16),
        (Case("late threshold", flat_up_to(64, 11 * MIB), 2000, 143), 16),
        (Case("late threshold", flat_up_to(64, 11 * MIB), 2000, 188, EXPANDABLE), 16),
    ],
    ids=str,
)
def test_c06_the_limit_is_exact_where_small_sizes_mislead(case: Case, probes: int) -> None:
    """The counts are what the finder needs today."""
    device = case.device
    assert device.limits(case.limit * 6 // 5, first=case.limit // 2) == [case.limit]
    answer, history = found(device)
    assert (answer.max_batch, answer.refuted_at) == (case.limit, case.limit + 1)
    assert len(history) <= probes


# Holes


HOLED = network(*(MIB // 8 * width for width in (80, 56, 108, 97, 141, 40)), weight=8 * MIB, batch=MIB)


def test_a_hole_of_the_native_allocator_that_was_foretold_does_not_end_the_search() -> None:
    device = PlantedDevice(workload=HOLED, limit_bytes=2496 * MIB)
    assert [size for size in range(20, 40) if not device.safe(size)] == [28, *range(31, 40)]
    answer, history = found(device)
    assert (answer.max_batch, answer.refuted_at, answer.holes) == (30, 31, (28,))
    assert [(probe.batch_size, probe.fits) for probe in history[1:]] == [
        (27, True),
        (28, False),
        (30, True),
        (31, False),
    ]


# Purity


def reread(probe: ProbeResult) -> ProbeResult:
    return probe if probe.trace is None else replace(probe, trace=decode(encode(probe.trace)))


@pytest.mark.parametrize(
    "case",
    [
        Case("network", NET, 740, 50),
        Case("appears large", APPEARS_LARGE, 632, 117),
        Case("saturates", SATURATES, 656, 133, EXPANDABLE),
        Case("each sample alone", each_sample_alone(192 * KIB), 740, 48),
    ],
    ids=str,
)
def test_a_search_cut_at_any_probe_goes_on_to_the_same_answer(case: Case) -> None:
    device = case.device
    finder = finder_for(device)
    whole, history = drive(finder, device, device.budget)
    assert whole.answer is not None and whole.answer.max_batch == case.limit
    for cut in range(1, len(history) + 1):
        earlier = tuple(reread(probe) for probe in history[:cut])
        stop, rest = drive(After(finder, earlier), case.device, device.budget)
        assert stop == whole
        assert asked([*earlier, *rest]) == asked(history)


def test_a_recording_that_was_lost_from_the_ledger_changes_the_way_and_not_the_answer() -> None:
    device = PlantedDevice(workload=NET, limit_bytes=740 * MIB)
    whole, history = drive(finder_for(device), device, device.budget)
    assert whole.answer is not None
    for cut in (1, 2, 3):
        earlier = tuple(replace(probe, trace=None) for probe in history[:cut])
        stop, _ = drive(After(finder_for(device), earlier), device, device.budget)
        assert stop.answer == replace(whole.answer, prediction=None)
