"""A prediction put together: which ways, more ranks where nothing fits, the ranks themselves where they can run."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from autotune.errors import EnvironmentTrouble, NothingFits, TimeRanOut, UsageError, WorkloadError
from autotune.front import predicting, searching
from autotune.front.observer import LogObserver
from autotune.identity import search_key
from autotune.model import Communicators, Parallel, Plan, Predicted, SearchResult
from tests.cli.results import BUDGET, MACHINE, PLAN, RESULT, WORKLOAD

ASKED = replace(PLAN, ranks=8, world=8)
NOTHING = NothingFits("nothing fits: batch 1 is out of memory")
NO_BLOCKS = WorkloadError("the workload fails at batch 1: no repeated blocks")


@dataclass
class Planted:
    """What searches come to, by way and ranks; an answer where nothing is planted."""

    ends: dict[tuple[Parallel, int], Exception] = field(default_factory=dict)
    asked: list[Plan] = field(default_factory=list)
    ran: list[Plan] = field(default_factory=list)
    """With all ranks."""
    told: list[dict[str, Any]] = field(default_factory=list)
    """What their searches were given beside the plan."""
    started: list[float] = field(default_factory=list)
    """From when the time budget counts, of every search."""

    def run(self, plan: Plan) -> SearchResult:
        end = self.ends.get((plan.settings.parallel, plan.ranks))
        if end is not None:
            raise end
        return replace(RESULT, plan=plan)

    @contextmanager
    def standing_in(self, plan: Plan, storage: object, observer: object, started: float) -> Iterator[Any]:
        self.started.append(started)
        marked = replace(plan, predicted=True)

        def session(plan: Plan) -> Any:
            self.asked.append(plan)
            return type("Session", (), {"run": lambda _, fresh: self.run(plan)})()

        held = Communicators(size_bytes=0, told_by="")
        yield predicting._Stand(marked, WORKLOAD, MACHINE, BUDGET, held, session)

    def search(self, plan: Plan, *_: object, **told: Any) -> SearchResult:
        self.ran.append(plan)
        self.told.append(told)
        self.started.append(told["started"])
        return self.run(replace(plan, ranks=-plan.ranks))


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> Planted:
    it = Planted()
    monkeypatch.setattr(predicting, "_standing_in", it.standing_in)
    monkeypatch.setattr(searching, "search", it.search)
    return it


def predict(plan: Plan = ASKED, verify: bool = False) -> Predicted:
    return predicting.predict(plan, None, False, LogObserver(), verify=verify)


def in_way(parallel: Parallel) -> Plan:
    return replace(ASKED, settings=replace(ASKED.settings, parallel=parallel))


def test_ways_are_compared_unless_one_is_asked_for(planted: Planted) -> None:
    assert [way.parallel for way in predict().ways] == [Parallel.DDP, Parallel.FSDP, Parallel.ZERO]
    assert [way.parallel for way in predict(in_way(Parallel.ZERO)).ways] == [Parallel.ZERO]
    assert all(plan.predicted for plan in planted.asked)


def test_a_way_that_does_not_suit_the_model_is_a_row_among_others(planted: Planted) -> None:
    planted.ends[Parallel.FSDP, 8] = NO_BLOCKS
    found = predict()
    assert [way.error for way in found.ways] == [None, NO_BLOCKS, None] and found.error is None


def test_a_workload_that_trains_in_no_way_fails_by_itself(planted: Planted) -> None:
    planted.ends = {(way, 8): NO_BLOCKS for way in predicting.WAYS}
    with pytest.raises(WorkloadError, match="no repeated blocks"):
        predict()


def test_where_nothing_fits_the_ranks_are_doubled_until_the_smallest_batch_does(planted: Planted) -> None:
    planted.ends = {(Parallel.FSDP, 8): NOTHING, (Parallel.FSDP, 16): NOTHING}
    (way,) = predict(in_way(Parallel.FSDP)).ways
    assert (way.result, way.enough) == (None, 32)
    assert [(plan.ranks, plan.world, plan.max_batch) for plan in planted.asked[1:]] == [(16, 16, 1), (32, 32, 1)]


@pytest.mark.parametrize("end", [NO_BLOCKS, TimeRanOut("the time budget ended")])
def test_what_ends_the_doubling_leaves_the_prediction_as_it_is(planted: Planted, end: Exception) -> None:
    planted.ends = {(Parallel.FSDP, 8): NOTHING, (Parallel.FSDP, 16): end}
    (way,) = predict(in_way(Parallel.FSDP)).ways
    assert way.error is NOTHING and way.enough is None and len(planted.asked) == 2


def test_more_ranks_of_ddp_share_nothing_more(planted: Planted) -> None:
    planted.ends = {(Parallel.DDP, 8): NOTHING}
    found = predict(in_way(Parallel.DDP))
    assert found.ways[0].enough is None and len(planted.asked) == 1
    assert found.error is NOTHING


def test_ranks_that_can_run_do_and_begin_at_the_predicted_batch(planted: Planted) -> None:
    planted.ends = {(Parallel.ZERO, 8): NOTHING, (Parallel.FSDP, -8): NOTHING}
    ddp, fsdp, zero = predict(verify=True).ways
    assert ddp.real is not None and ddp.verified
    assert fsdp.real is None and fsdp.real_error is NOTHING and fsdp.verified
    assert not zero.verified  # nothing to begin with
    # as a person would ask for it, whose own way is what ddp was predicted for
    assert planted.ran == [ASKED, in_way(Parallel.FSDP)]
    assert [told["guess"] for told in planted.told] == [27, 27]


def test_ddp_that_was_asked_for_runs_as_that(planted: Planted) -> None:
    predict(in_way(Parallel.DDP), verify=True)
    assert planted.ran == [in_way(Parallel.DDP)]


def test_the_time_budget_is_that_of_the_whole_command(planted: Planted) -> None:
    planted.ends = {(Parallel.FSDP, 8): NOTHING, (Parallel.FSDP, 16): NOTHING}
    predict(replace(ASKED, time_budget_s=60.0), verify=True)
    assert len(planted.started) == 1 + 2 + 2  # a stand-in, more ranks twice, ddp and zero with all ranks
    assert len(set(planted.started)) == 1


def test_nothing_more_is_started_when_the_time_is_up(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    planted.ends = {(Parallel.FSDP, 8): NOTHING}
    instants = iter([0.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(instants, 60.0))
    ddp, fsdp, zero = predict(replace(ASKED, time_budget_s=60.0), verify=True).ways
    assert ddp.result is not None and zero.result is not None and fsdp.error is NOTHING
    assert not any(way.verified for way in (ddp, fsdp, zero)) and fsdp.enough is None
    assert len(planted.started) == 1


def test_what_keeps_the_ranks_from_running_leaves_the_prediction_as_it_is(planted: Planted) -> None:
    planted.ends = {(Parallel.DDP, -8): EnvironmentTrouble("device 1 is gone")}
    (way,) = predict(in_way(Parallel.DDP), verify=True).ways
    assert way.result is not None and not way.verified


def test_one_rank_needs_no_prediction() -> None:
    with pytest.raises(UsageError, match="one rank needs no prediction"):
        predict(PLAN)


def test_a_prediction_is_another_question_than_the_search_that_runs_the_ranks() -> None:
    marked = replace(ASKED, predicted=True, communicators_bytes=1)
    keys = [search_key(plan, WORKLOAD, MACHINE) for plan in (ASKED, marked, replace(marked, communicators_bytes=2))]
    assert len(set(keys)) == 3


def test_as_many_devices_as_ranks_are_those_of_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    from autotune.probe import nvml

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert predicting._devices(replace(MACHINE, device="cpu")) == ()
    monkeypatch.setattr(nvml, "cards", lambda: ())
    assert predicting._devices(MACHINE) == ()
