"""Whole searches on several workers with the real session and ledger: only the tool writes, and what was lost is told."""

import time
from pathlib import Path

import pytest

from autotune import api
from autotune.errors import EnvironmentTrouble
from autotune.model import Cause, Form, Outcome, Question, SearchResult, SearchState
from autotune.report.records import search_lines
from autotune.session import Session
from autotune.storage.store import Store
from tests.contract.searching import BUDGET, Notes, asked_for, plan, planted, search, workload
from tests.fakes import MACHINE
from tests.unit.planted_bench import PlantedBench


def searched(store: Store, bench: PlantedBench) -> SearchResult:
    """As ``api`` searches where there are workers: the bench is its laboratory as well."""
    session = Session(plan(), store, bench, Notes(), workload(), MACHINE, BUDGET, time.monotonic())  # type: ignore[arg-type]
    return session.run(fresh=False)


def test_the_ledger_of_a_search_on_workers_is_that_of_one_device(tmp_path: Path) -> None:
    with Store.open(str(tmp_path / "one.db")) as store:
        alone = search(store, planted())
    with Store.open(str(tmp_path / "three.db")) as store:
        found = searched(store, PlantedBench(planted(), width=3))
        kept = store.probes(found.search_id)
    assert found.answer == alone.answer
    assert [(p.batch_size, p.form) for p in kept] == [(p.batch_size, p.form) for p in alone.probes]


def test_lost_probes_are_recorded_and_shown_and_bound_nothing(tmp_path: Path) -> None:
    path = str(tmp_path / "ledger.db")
    with Store.open(path) as store:
        alone = search(store, planted(), of=workload("other.py"), asked=plan("other.py"))
        found = searched(store, PlantedBench(planted(), dies=lambda question, ticket: ticket in (1, 2, 5)))
    record, probes = api.show(found.search_id, path)
    lost = [probe for probe in probes if probe.failure and probe.failure.cause is Cause.LOST]
    assert found.answer == alone.answer and record.state is SearchState.ANSWERED
    assert len(lost) == 3 and all(probe.outcome is Outcome.UNRELIABLE for probe in lost)
    assert lost[0] not in found.probes
    memory = {Outcome.OUT_OF_MEMORY, Outcome.HOST_OUT_OF_MEMORY}
    assert [p.batch_size for p in probes if p.outcome in memory] == [
        p.batch_size for p in alone.probes if p.outcome in memory
    ]
    assert search_lines(record, probes).count("the worker that ran it was lost, and it ran again") == 3


def test_a_search_that_lost_its_workers_goes_on_later_and_takes_nothing_from_the_losses(tmp_path: Path) -> None:
    def dies(question: Question, ticket: int) -> bool:
        return question.form is Form.LONG

    with Store.open(str(tmp_path / "ledger.db")) as store:
        with pytest.raises(EnvironmentTrouble, match="was lost 4 times"):
            searched(store, PlantedBench(planted(), dies=dies))
        (record,) = store.searches(10)
        assert record.state is SearchState.INTERRUPTED
        prober = planted()
        found = searched(store, PlantedBench(prober))
        assert found.search_id == record.id
        assert found.answer == search(store, planted(), of=workload("b.py"), asked=plan("b.py")).answer
        assert all(form is Form.LONG or size > 1 for size, form in asked_for(prober))


def test_what_ran_ahead_is_kept_when_a_search_is_interrupted(tmp_path: Path) -> None:
    class Stopping(PlantedBench):
        def wait(self, timeout_s: float) -> object:  # type: ignore[override]
            found = super().wait(timeout_s)
            if self.clock >= 3:
                raise KeyboardInterrupt
            return found

    bench = Stopping(planted(), width=2, takes=lambda question: 1.0 if question.batch_size != 4 else 5.0)
    with Store.open(str(tmp_path / "ledger.db")) as store:
        with pytest.raises(KeyboardInterrupt):
            searched(store, bench)
        (record,) = store.searches(10)
        assert record.state is SearchState.INTERRUPTED and record.message == "stopped by SIGINT"
        assert [p.batch_size for p in store.probes(record.id)]
        again = planted()
        found = searched(store, PlantedBench(again))
        assert found.search_id == record.id and found.answer.max_batch == 15
        known = {
            (p.batch_size, p.form) for p in store.probes(record.id)[: len(store.probes(record.id)) - len(again.asked)]
        }
        assert not known & set(asked_for(again))
