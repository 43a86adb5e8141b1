"""Which size is diagnosed, with which settings, and what the end of a process means."""

from dataclasses import replace
from typing import Any

import pytest

from autotune.diagnosing import SMALL, run_sections, sections_of, start_of
from autotune.errors import AutotuneError, EnvironmentTrouble, NothingFits, UsageError, WorkloadError
from autotune.model import Cause, Failure, LeakEvidence, Outcome, Section
from autotune.probe.answers import section_result
from autotune.probe.launcher import Examined
from autotune.report.document import document
from tests.cli.results import BUDGET, MACHINE, PLAN, RECORD, RESULT, WORKLOAD

DOCUMENT = document(RESULT)
SEEN = LeakEvidence(held_bytes=(1,) * 8)


class FakeLauncher:
    """Ends as it is told, size by size."""

    def __init__(self, *ends: Examined) -> None:
        self._ends = list(ends)
        self.sizes: list[int] = []

    def examine(self, section: Section, batch_size: int, *_: Any, **details: Any) -> Examined:
        """As ``Launcher.examine``."""
        self.sizes.append(batch_size)
        return self._ends.pop(0)


def failed(outcome: Outcome, step: int, seen: LeakEvidence | None = SEEN) -> Examined:
    failure = Failure(cause=Cause.DEVICE_MEMORY, message="it failed", step=step, traceback="theirs")
    return Examined(seen=seen, outcome=outcome, failure=failure)


def ran(*ends: Examined, batch: int | None = None) -> tuple[Any, list[int]]:
    launcher = FakeLauncher(*ends)
    start = start_of(batch, PLAN, WORKLOAD, None, ())
    findings = run_sections(
        launcher,  # type: ignore[arg-type]
        start,
        (Section.LEAKS,),
        workload=WORKLOAD,
        machine=MACHINE,
        budget=BUDGET,
        steps=None,
        output="",
        say=lambda text: None,
        keep=lambda findings: None,
    )
    return findings, launcher.sizes


def test_the_size_asked_for_comes_before_all() -> None:
    assert start_of(7, PLAN, WORKLOAD, DOCUMENT, (RECORD,)).batches == (7,)


def test_a_recommendation_of_this_workload_gives_size_and_settings() -> None:
    start = start_of(None, PLAN, WORKLOAD, DOCUMENT, ())
    assert start.batches == (DOCUMENT.batch.micro_batch,)
    assert "autotune.json" in start.batch_from


def test_one_of_another_workload_does_not_count_and_the_ledger_s_answer_does() -> None:
    other = replace(WORKLOAD, fingerprint="other")
    mine = replace(RECORD, workload=other)
    assert RECORD.answer is not None
    start = start_of(None, PLAN, other, DOCUMENT, (RECORD, mine))
    assert start.batches == (RECORD.answer.recommended_batch or RECORD.answer.max_batch,)
    assert RECORD.id in start.batch_from


def test_a_prediction_for_ranks_that_were_not_run_is_no_answer() -> None:
    predicted = replace(RECORD, plan=replace(PLAN, ranks=8, predicted=True))
    assert start_of(None, PLAN, WORKLOAD, None, (predicted,)).batches == SMALL


def test_where_nothing_is_known_small_sizes_are_tried_that_the_data_and_the_plan_allow() -> None:
    assert start_of(None, PLAN, WORKLOAD, None, ()).batches == SMALL
    assert start_of(None, replace(PLAN, multiple_of=4), WORKLOAD, None, ()).batches == (8, 4, 32, 256)
    assert start_of(None, PLAN, replace(WORKLOAD, data_set_size=2), None, ()).batches == (2, 1)


def test_a_size_that_is_none_makes_room_for_the_next() -> None:
    findings, sizes = ran(failed(Outcome.WORKLOAD_ERROR, 1), Examined(seen=SEEN))
    assert (findings.batch_size, sizes) == (1, [2, 1])
    assert findings.leaks.clean


def test_where_no_size_trains_the_first_failure_is_told() -> None:
    ends = [failed(Outcome.WORKLOAD_ERROR, 1)] * 4
    with pytest.raises(WorkloadError, match=f"at batch {SMALL[0]} fails: it failed") as told:
        ran(*ends)
    assert told.value.detail == "theirs"


def test_memory_that_ends_in_the_first_step_is_no_leak_and_later_it_is() -> None:
    with pytest.raises(NothingFits):
        ran(failed(Outcome.OUT_OF_MEMORY, 1), batch=8)
    findings, _ = ran(failed(Outcome.OUT_OF_MEMORY, 9), batch=8)
    assert findings.leaks.died_at_step == 9 and not findings.clean


@pytest.mark.parametrize(
    ("end", "kind"),
    [
        (failed(Outcome.CRASHED, 3, None), EnvironmentTrouble),
        (failed(Outcome.TIMED_OUT, 3, None), EnvironmentTrouble),
        (failed(Outcome.UNSUPPORTED, 1, None), UsageError),
        (failed(Outcome.OUT_OF_MEMORY, 9, None), NothingFits),
        (Examined(seen=None), EnvironmentTrouble),
    ],
)
def test_what_ends_a_process_is_an_error_of_its_own_kind(end: Examined, kind: type[AutotuneError]) -> None:
    with pytest.raises(kind):
        ran(end, batch=8)


def test_sections_are_named_between_commas_and_all_are_looked_at_where_none_is() -> None:
    assert sections_of(()) == sections_of(None)
    assert sections_of(("leaks",)) == sections_of("leaks") == (Section.LEAKS,)


@pytest.mark.parametrize(
    "broken",
    [
        {"held_bytes": "many"},
        {"suspects": [{"kind": "colour", "what": "it", "count_per_step": 1.0}]},
        {"graphs_kept": 1 << 70},
        {"room_bytes": [1]},
    ],
)
def test_an_answer_of_another_form_is_refused(broken: dict[str, Any]) -> None:
    with pytest.raises(EnvironmentTrouble):
        section_result(Section.LEAKS, broken)
