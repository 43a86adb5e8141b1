"""The tool's side of several workers: alike or apart, lost and started again, believed only as far as they can be."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from autotune.errors import EnvironmentTrouble, NothingFits, TimeRanOut, WorkloadError
from autotune.executors import workers as workers_module
from autotune.executors.ahead import Ahead
from autotune.executors.asked import Execution
from autotune.executors.bench import Bench
from autotune.executors.documents import error_document
from autotune.executors.workers import LOSSES, Workers
from autotune.model import Cause, Form, ProbeResult, Question, Reason
from autotune.search.batch import BatchFinder
from autotune.search.imagine import imagination
from tests.contract.searching import BUDGET, LARGEST, plan, planted, workload
from tests.fakes import MACHINE, drive
from tests.unit.planted_workers import GPU, PlantedWorker

QUESTION = Question(batch_size=2, form=Form.SHORT, reason=Reason.START)
OTHER = replace(GPU, device_name="Planted 24", driver_version="560.2")


@pytest.fixture(autouse=True)
def no_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lost workers are started again at once."""
    monkeypatch.setattr(workers_module, "_BACKOFF_S", 0.0)


@contextmanager
def opened(*planted: PlantedWorker, said: list[str] | None = None, until: float | None = None) -> Iterator[Workers]:
    """Workers that behave so, described."""
    links = iter([worker.link for worker in planted])
    said = [] if said is None else said
    with Workers(Execution(workers=len(planted)), plan(), said.append, until) as found:
        for worker, start in zip(found._workers, links, strict=True):
            worker.start = start  # type: ignore[assignment]
        found.preload("cuda")
        yield found


def test_a_search_on_alike_workers_finds_the_limit_and_uses_each() -> None:
    one, two = PlantedWorker(), PlantedWorker(machine=replace(GPU, device_uuid="GPU-2", device_index=1))
    with opened(one, two) as workers:
        info, machine = workers.describe("cuda", 1)
        assert info == workload() and machine == GPU and isinstance(workers, Bench)
        assert (workers.width, workers.idle) == (2, 2)
        finder = BatchFinder()
        stop, _ = drive(finder, Ahead(finder, workers, (), imagination(finder)), workers.budget())
    assert stop.answer is not None and stop.answer.max_batch == LARGEST
    assert one.asked and two.asked


def test_the_budget_is_the_least_of_those_that_serve() -> None:
    small = replace(BUDGET, limit_bytes=BUDGET.limit_bytes // 2)
    tiny = replace(BUDGET, limit_bytes=1)
    with opened(PlantedWorker(), PlantedWorker(budget=small), PlantedWorker(budget=tiny, machine=OTHER)) as workers:
        workers.describe("cuda", 1)
        assert workers.budget() == small


def test_another_kind_of_machine_is_named_and_waits_for_a_search_of_its_own() -> None:
    said: list[str] = []
    one, two = PlantedWorker(), PlantedWorker(machine=OTHER, prober=planted())
    with opened(one, two, said=said) as workers:
        _, machine = workers.describe("cuda", 1)
        assert machine == GPU and workers.other_kinds == (OTHER,) and workers.width == 1
        assert workers.probe(QUESTION, BUDGET, 0).fits and not two.asked
        (text,) = said
        assert text.startswith(
            "worker 2, Planted 24 (cuda:0 on planted) is of another kind than Planted 40 (cuda:0 on "
        )
        assert text.endswith(": device Planted 24 and not Planted 40, driver 560.2 and not 550.1")
        assert workers.turn_to(OTHER) == (workload(), OTHER) and not workers.other_kinds
        assert workers.probe(QUESTION, BUDGET, 0).fits and two.asked == [QUESTION] and one.asked == [QUESTION]


def test_a_worker_with_another_workload_is_left_out() -> None:
    said: list[str] = []
    with opened(PlantedWorker(), PlantedWorker(of=workload("changed.py")), said=said) as workers:
        workers.describe("cuda", 1)
        assert workers.width == 1
    assert said[0].endswith("is left out: it finds another workload at planted.py than the others")


def test_a_worker_that_comes_back_with_less_room_than_the_search_is_for_is_left_out() -> None:
    said: list[str] = []
    two = PlantedWorker(dies=lambda question, life: life == 1)
    with opened(PlantedWorker(dies=lambda question, life: life == 1), two, said=said) as workers:
        workers.describe("cuda", 1)
        two.budget = replace(BUDGET, limit_bytes=1 << 29)
        lost: list[ProbeResult] = []
        ahead = Ahead(None, workers, (), lambda *_: None, lost=lost.append)
        assert ahead.probe(QUESTION, BUDGET, 0).fits
        assert [one.failure.cause for one in lost if one.failure] == [Cause.LOST] * len(lost) and lost
        workers.submit(QUESTION, BUDGET, 0), workers.submit(QUESTION, BUDGET, 0)
        while workers.width == 2:
            workers.wait(1.0)
    assert any("a job may use 512 MiB there, and the search is for 1 GiB" in text for text in said)


def test_a_worker_that_is_lost_again_and_again_is_given_up() -> None:
    said: list[str] = []
    with opened(PlantedWorker(dies=lambda question, life: True), said=said) as workers:
        workers.describe("cuda", 1)
        workers.submit(QUESTION, BUDGET, 0)
        with pytest.raises(EnvironmentTrouble, match=f"was lost {LOSSES} times in a row") as trouble:
            while True:
                for end in workers.wait(1.0):
                    workers.submit(QUESTION, BUDGET, 0)
                    assert end
    assert "its process was ended by signal 9" in trouble.value.message
    assert (
        "worker 1, Planted 40 (cuda:0 on planted) was lost: its process was ended by signal 9; what it ran is run again"
        in said
    )


def test_an_error_of_the_workload_is_that_of_the_search() -> None:
    refused = {"kind": "refused", "error": error_document(WorkloadError("it fails", detail="Traceback"))}
    with opened(PlantedWorker(opens=lambda life: refused), PlantedWorker()) as workers:
        with pytest.raises(WorkloadError, match="it fails") as error:
            workers.describe("cuda", 1)
        assert error.value.detail == "Traceback"


def test_one_worker_without_its_device_is_left_out_and_all_of_them_are_an_error() -> None:
    refused = {"kind": "refused", "error": error_document(EnvironmentTrouble("there is no cuda:7", hint="look"))}
    said: list[str] = []
    with opened(PlantedWorker(opens=lambda life: refused), PlantedWorker(), said=said) as workers:
        workers.describe("cuda", 1)
        assert workers.width == 1 and said == ["there is no cuda:7"]
    with (
        opened(PlantedWorker(opens=lambda life: refused)) as workers,
        pytest.raises(EnvironmentTrouble, match="no cuda:7"),
    ):
        workers.describe("cuda", 1)


@pytest.mark.parametrize(
    ("forged", "message"),
    [
        ({"kind": "answer", "result": 7}, "is no object"),
        ({"kind": "answer", "result": {"batch_size": 1}}, "is in an unknown form"),
        ({"kind": "refused", "error": 7}, "a worker refused without a reason"),
    ],
)
def test_a_forged_answer_is_an_error_that_names_the_worker_or_says_so(forged: dict[str, Any], message: str) -> None:
    with opened(PlantedWorker(forges=lambda answer: dict(forged))) as workers:
        workers.describe("cuda", 1)
        with pytest.raises(EnvironmentTrouble, match=message):
            workers.probe(QUESTION, BUDGET, 0)


def test_an_outcome_that_contradicts_its_failure_or_numbers_that_cannot_be_are_refused() -> None:
    def forge(**fields: object) -> PlantedWorker:
        return PlantedWorker(forges=lambda answer: {**answer, "result": {**answer["result"], **fields}})

    for worker, message in (
        (forge(outcome="out_of_memory"), "contradicts its failure"),
        (forge(batch_size=1 << 70), "batch_size: a number that cannot be"),
        (forge(seconds=float("nan")), "seconds: nan is no duration"),
        (forge(batch_size=3), "is to another question: batch 3, short, in place of 2, short"),
        (forge(form="long"), "is to another question: batch 2, long, in place of"),
        (forge(trace="????"), "a trace that is none"),
    ):
        with opened(worker) as workers:
            workers.describe("cuda", 1)
            with pytest.raises(EnvironmentTrouble, match=message):
                workers.probe(QUESTION, BUDGET, 0)


def test_a_recording_ends_at_a_larger_size_than_it_begins_with() -> None:
    recording = replace(QUESTION, reason=Reason.TRACE, trace_unit=2, trace_largest=64)
    with opened(PlantedWorker(forges=lambda one: {**one, "result": {**one["result"], "batch_size": 7}})) as workers:
        workers.describe("cuda", 1)
        assert workers.probe(recording, BUDGET, 0).batch_size == 7
    with opened(PlantedWorker(forges=lambda one: {**one, "result": {**one["result"], "batch_size": 1}})) as workers:
        workers.describe("cuda", 1)
        with pytest.raises(EnvironmentTrouble, match="is to another question: batch 1, short, in place of 2"):
            workers.probe(recording, BUDGET, 0)


def test_a_worker_that_answers_in_an_unknown_form_is_left_out_and_another_one_answers() -> None:
    said: list[str] = []
    forger = PlantedWorker(forges=lambda answer: {**answer, "result": {**answer["result"], "batch_size": 1}})
    two = PlantedWorker(machine=replace(GPU, device_uuid="GPU-2", device_index=1))
    with opened(forger, two, said=said) as workers:
        workers.describe("cuda", 1)
        lost: list[ProbeResult] = []
        ahead = Ahead(None, workers, (), lambda *_: None, lost=lost.append)
        assert [ahead.probe(QUESTION, BUDGET, 0).batch_size for _ in range(2)] == [2, 2]
        assert workers.width == 1 and len(forger.asked) == len(lost) == 1
    assert said[0].startswith("the answer of worker 1, Planted 40 (cuda:0 on planted) is to another question")


def test_no_worker_is_waited_for_when_the_time_is_over() -> None:
    queued = PlantedWorker(opens=lambda life: {"kind": "note", "text": "the job waits"})
    with (
        opened(queued, until=time.monotonic()) as workers,
        pytest.raises(TimeRanOut, match="while there was no worker yet"),
    ):
        workers.describe("cuda", 1)


def test_a_worker_that_speaks_out_of_turn_is_lost() -> None:
    said: list[str] = []
    two = PlantedWorker(opens=lambda life: {"kind": "answer"} if life == 1 else None)
    with opened(PlantedWorker(), two, said=said) as workers:
        workers.describe("cuda", 1)
    assert "worker 2 was lost: it sent 'answer' out of turn" in said


def test_an_error_of_a_probe_comes_with_its_kind_hint_and_detail() -> None:
    error = error_document(NothingFits("no", hint="smaller", detail="split"))
    with opened(PlantedWorker(forges=lambda answer: {"kind": "refused", "error": error})) as workers:
        workers.describe("cuda", 1)
        with pytest.raises(NothingFits) as caught:
            workers.probe(QUESTION, BUDGET, 0)
    assert (caught.value.message, caught.value.hint, caught.value.detail) == ("no", "smaller", "split")


def test_on_the_cpu_of_this_host_what_the_caller_holds_is_missing_from_a_limit() -> None:
    with opened(PlantedWorker(machine=MACHINE), PlantedWorker(machine=MACHINE)) as workers:
        workers.describe("cpu", 1)
        assert workers.budget(1000).limit_bytes == BUDGET.limit_bytes - 1000
