"""Searches on a device that others use: a probe they disturbed runs again, a bounded number of times, and proves nothing."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from autotune.errors import EnvironmentTrouble
from autotune.model import Budget, Form, Outcome, Plan, ProbeResult, Question, SearchState, Settings, Source, Stop
from autotune.ports import Prober, Strategy
from autotune.probe.tenants import disturbance
from autotune.search.allocators import BestAllocator
from autotune.search.batch import BatchFinder
from autotune.search.evaluation import EvaluationFinder
from autotune.search.loading import OwnLoaderFinder
from autotune.session import Session
from autotune.storage.store import Store
from autotune.units import GIB
from tests.cli.results import WORKLOAD
from tests.fakes import BUDGET, EVALUATION_FAILS, FakeProber, drive
from tests.unit.test_best_allocator import EXPANDABLE, TwoAllocators
from tests.unit.test_budget import machine

ROOMY = Budget(limit_bytes=GIB, source="--memory-limit", capacity_bytes=80 * GIB, others_bytes=0, headroom_bytes=0)
THEIRS = disturbance(ROOMY, 0, 5 * GIB)


@dataclass
class Disturbed:
    """Another prober, on a device whose neighbour moves during some probes."""

    prober: Prober
    during: Callable[[int], bool]
    """By the probe's number, from 0."""
    asked: list[Question] = field(default_factory=list)

    def probe(self, question: Question, budget: Budget, reserve_bytes: int) -> ProbeResult:
        number = len(self.asked)
        self.asked.append(question)
        answer = self.prober.probe(question, budget, reserve_bytes)
        if not self.during(number):
            return answer
        seen = replace(answer.measurement, non_pytorch_bytes=None, peak_device_bytes=None)
        return replace(answer, outcome=Outcome.UNRELIABLE, failure=THEIRS, measurement=seen)


def plain() -> tuple[Strategy, Prober]:
    return BatchFinder(recommend=True), FakeProber(per_sample_bytes=20, step_seconds=lambda size: 1.0 + size)


def allocators() -> tuple[Strategy, Prober]:
    return BestAllocator(BatchFinder(), (EXPANDABLE,)), TwoAllocators({"": 50, EXPANDABLE: 61}, fragmented=True)


def evaluating() -> tuple[Strategy, Prober]:
    prober = FakeProber(per_sample_bytes=20, evaluate=lambda size, question: EVALUATION_FAILS if size > 11 else None)
    return EvaluationFinder(finder=BatchFinder(recommend=False)), prober


def loading() -> tuple[Strategy, Prober]:
    finder = OwnLoaderFinder(finder=BatchFinder(), workers=4, pin_memory=False)
    return finder, FakeProber(per_sample_bytes=20, step_seconds=lambda size: 1.0)


SEARCHES = [plain, allocators, evaluating, loading]


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("times", [1, 2])
def test_c26_a_disturbed_probe_runs_again_and_the_answer_is_that_of_a_quiet_device(
    search: Callable[[], tuple[Strategy, Prober]], times: int
) -> None:
    strategy, prober = search()
    quiet, history = drive(strategy, prober)
    assert quiet.answer is not None
    for number, probe in enumerate(history):
        if probe.form is Form.LOADING:
            continue  # looks at no memory of the device: never called unreliable
        strategy, prober = search()
        device = Disturbed(prober, lambda at, number=number: number <= at < number + times)  # type: ignore[misc]
        stop, disturbed = drive(strategy, device)
        again = [(q.batch_size, q.form, q.settings, q.evaluate_at) for q in device.asked[number : number + times + 1]]
        assert len(set(again)) == 1, f"probe {number} did not run again at once"
        assert stop.answer is not None
        assert replace(stop.answer, prediction=None) == replace(quiet.answer, prediction=None), f"probe {number}"
        assert len(disturbed) <= len(history) + times


@pytest.mark.parametrize("search", SEARCHES)
def test_c26_a_neighbour_that_does_not_settle_ends_the_search_and_no_size_is_refuted_by_it(
    search: Callable[[], tuple[Strategy, Prober]],
) -> None:
    for quiet_probes in range(4):
        strategy, prober = search()
        stop, history = drive(strategy, Disturbed(prober, lambda number, first=quiet_probes: number >= first))  # type: ignore[misc]
        assert stop.answer is None
        assert len(history) == quiet_probes + 3
        assert {p.batch_size for p in history[quiet_probes:]} == {history[-1].batch_size}


class Quietly:
    """Hears what a search says."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


def session(store: Store, prober: Prober, observer: Any) -> Session:
    plan = Plan(source=Source(ref="model.py", directory="/"), recommend=False)
    workload = replace(WORKLOAD, evaluates=False, data_set_size=None, loader=None)
    return Session(plan, store, prober, observer, workload, machine("cpu"), BUDGET, time.monotonic())


def test_c26_an_answer_whose_confirmation_was_disturbed_stands_and_is_confirmed_the_next_time(tmp_path: Path) -> None:
    heard = Quietly()
    with Store.open(str(tmp_path / "ledger.sqlite3")) as store:
        first = session(store, FakeProber(per_sample_bytes=20), heard).run(fresh=False)
        restless = Disturbed(FakeProber(per_sample_bytes=20), lambda number: True)
        with pytest.raises(EnvironmentTrouble, match="cannot be judged: other processes hold 5 GiB"):
            session(store, restless, heard).run(fresh=False)
        assert len(restless.asked) == 3, "and no search anew on a device like that"
        assert [record.state for record in store.searches(9)] == [SearchState.INTERRUPTED, SearchState.ANSWERED]
        calm = FakeProber(per_sample_bytes=20)
        again = session(store, calm, heard).run(fresh=False)
        assert (again.answer, again.from_ledger, len(calm.asked)) == (first.answer, True, 1)


def test_c26_a_disturbed_search_goes_on_where_it_was_and_forgets_what_was_disturbed(tmp_path: Path) -> None:
    quiet = FakeProber(per_sample_bytes=20)
    with Store.open(str(tmp_path / "ledger.sqlite3")) as store:
        restless = Disturbed(FakeProber(per_sample_bytes=20), lambda number: number >= 3)
        with pytest.raises(EnvironmentTrouble) as caught:
            session(store, restless, Quietly()).run(fresh=False)
        assert "run the same command again when the device is quiet" in caught.value.hint
        heard = Quietly()
        result = session(store, quiet, heard).run(fresh=False)
        assert any("3 finished probes are used again" in note for note in heard.notes)
    expected, _ = drive(BatchFinder(recommend=False), FakeProber(per_sample_bytes=20))
    assert isinstance(expected, Stop) and expected.answer is not None
    assert result.answer.max_batch == expected.answer.max_batch
    assert result.settings == Settings() and all(p.outcome is not Outcome.UNRELIABLE for p in result.probes)
