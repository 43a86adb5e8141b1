"""Evaluation apart where allocations are recorded: training is foretold without it, and both limits are the true ones."""

from dataclasses import replace

import pytest

from autotune.memory.forecast import learn
from autotune.memory.without_evaluation import without_evaluation
from autotune.model import Form, Phase, Question, Reason
from autotune.search.apart import Apart
from autotune.search.batch import BatchFinder
from autotune.search.evaluation import EvaluationFinder
from autotune.units import KIB, MIB
from tests.fakes import drive
from tests.unit.planted_device import PlantedDevice
from tests.unit.planted_searches import twelve_layers
from tests.unit.planted_workloads import Workload

LIMIT_BYTES = 740 * MIB


def evaluating(times: int) -> Workload:
    """An evaluation that takes so many times half of what a training step takes."""
    layers = twelve_layers(192 * KIB, evaluates=True)
    return tuple(
        replace(request, per_sample=request.per_sample * times // 3) if request.born is Phase.EVALUATE else request
        for request in layers
    )


def device(times: int) -> PlantedDevice:
    return PlantedDevice(workload=evaluating(times), limit_bytes=LIMIT_BYTES)


FINDER = EvaluationFinder(finder=BatchFinder(trace=True, recommend=False))


@pytest.mark.parametrize("times", [3, 6, 12, 40])
def test_c11_recorded_searches_find_both_true_limits_in_five_probes(times: int) -> None:
    machine = device(times)
    stop, history = drive(FINDER, machine, machine.budget)
    found = stop.answer
    assert found is not None and found.evaluation is not None and found.evaluation.max_batch is not None
    assert machine.safe(found.max_batch, 0) and not machine.safe(found.max_batch + 1, 0)
    largest = max(size for size in range(1, found.max_batch) if machine.safe(found.max_batch, size))
    assert (found.evaluation.max_batch, found.evaluation.refuted_at) == (largest, largest + 1)
    assert len(history) <= 5
    assert found.prediction is not None and found.prediction.limit == found.max_batch


def test_an_evaluation_that_fits_as_far_as_training_does_changes_no_probe() -> None:
    machine, alone = device(1), device(1)
    drive(FINDER, machine, machine.budget)
    drive(BatchFinder(trace=True, recommend=False), alone, alone.budget)
    assert machine.asked == alone.asked


def test_a_recording_without_its_evaluation_is_that_of_a_workload_that_has_none() -> None:
    machine = device(6)
    plain = PlantedDevice(workload=twelve_layers(192 * KIB), limit_bytes=LIMIT_BYTES)
    question = BatchFinder(trace=True).ask([])
    assert isinstance(question, Question)
    probes = [one.probe(question, one.budget, 0) for one in (machine, plain)]
    with_it, without = (probe.trace for probe in probes)
    assert with_it is not None and without is not None
    stripped = without_evaluation(with_it)
    assert not any(mark.phase is Phase.EVALUATE for mark in stripped.marks)
    first = without.passes[0].batch_size  # later sizes are chosen by the peaks, which the evaluation raises
    assert [m.phase for m in stripped.marks if m.batch_size == first] == [
        m.phase for m in without.marks if m.batch_size == first
    ]
    learned, plainly = learn(stripped), learn(without)
    assert not isinstance(learned, str) and not isinstance(plainly, str)
    assert [sorted(one.sizes_at(32)) for one in (learned, plainly)] == [sorted(plainly.sizes_at(32))] * 2


def test_what_each_allocation_is_and_when_it_ends_survives_the_cut() -> None:
    machine = device(6)
    question = BatchFinder(trace=True).ask([])
    assert isinstance(question, Question)
    trace = machine.probe(question, machine.budget, 0).trace
    assert trace is not None
    stripped = without_evaluation(trace)
    assert without_evaluation(trace) is stripped, "what is learned is kept by identity"
    assert without_evaluation(stripped) is stripped
    alive: set[int] = set()
    for event in stripped.events:
        assert (event not in alive) if event > 0 else (-event in alive)
        alive ^= {abs(event)}
    assert sorted(abs(event) for event in stripped.events if event > 0) == list(range(1, len(stripped.sizes) + 1))
    assert [mark.position for mark in stripped.marks] == sorted(mark.position for mark in stripped.marks)


def test_the_prediction_of_both_together_is_not_taken_for_one_of_training() -> None:
    machine = device(3)
    _, history = drive(FINDER, machine, machine.budget)
    predicted = [p for p in history if p.reason is Reason.PREDICTED]
    seen = [p for p in Apart.of(history).training if p.reason is Reason.PREDICTED]
    assert [p.batch_size for p in predicted] == [39, 50]
    assert [p.batch_size for p in seen] == [50]
    assert all(p.form is Form.LONG for p in predicted)


@pytest.mark.parametrize(("asked", "limit", "probes"), [(1, 1, 3), (19, 19, 3), (20, 19, 7), (30, 19, 7)])
def test_with_a_size_of_evaluation_asked_for_training_is_foretold_as_well_as_without(
    asked: int, limit: int, probes: int
) -> None:
    machine = device(6)
    stop, history = drive(replace(FINDER, asked=asked), machine, machine.budget)
    assert stop.answer is not None and stop.answer.evaluation is not None and stop.answer.prediction is not None
    assert (stop.answer.max_batch, stop.answer.prediction.limit) == (50, 50)
    assert stop.answer.evaluation.max_batch == limit
    assert len(history) <= probes
