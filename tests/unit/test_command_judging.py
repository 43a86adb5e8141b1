"""What the end of a command's run says: watched from within, or only from outside."""

import json
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from autotune.model import Cause, Form, Measurement, Outcome, ProbeResult, Question, Reason, Settings
from autotune.probe.classify import Evidence, Raised, classify
from autotune.probe.command.launcher import _without_early_end
from autotune.probe.command.unwatched import judge_unwatched
from autotune.probe.ended import read_ended
from autotune.probe.judge import judge
from tests.fakes import MACHINE
from tests.unit.classify_samples import ENDED

GOOD = Measurement(
    steps_asked=3, steps_executed=3, observed_batch=8, micro_batches=1, losses=(1.0,) * 3, data_set_size=1000
)


def verdict(**facts: object) -> tuple[Outcome, Cause, str] | None:
    """Of a command that was told a batch of 8."""
    measurement = replace(GOOD, **facts)  # type: ignore[arg-type]
    found = judge(measurement, batch_size=8, form=Form.SHORT, budget_bytes=1 << 30, device="cpu")
    return None if found is None else (found[0], found[1].cause, found[1].message)


def test_a_command_that_trains_on_what_it_was_told_is_safe() -> None:
    assert verdict() is None
    assert verdict(observed_batch=None) is None, "nothing could be seen of its batches"


@pytest.mark.parametrize(("seen", "samples"), [(32, 1000), (4, 1000), (4, None), (32, None)])
def test_a_command_that_trains_on_another_batch_does_not_do_what_it_was_told(seen: int, samples: int | None) -> None:
    found = verdict(observed_batch=seen, data_set_size=samples)
    assert found is not None
    assert found[:2] == (Outcome.WORKLOAD_ERROR, Cause.USER_BUG)
    assert found[2] == f"the command was told a batch of 8 and trains on {seen}: it does not do what it was told"


def test_a_batch_that_holds_the_whole_data_set_is_its_limit() -> None:
    found = verdict(observed_batch=5, data_set_size=5)
    assert found is not None
    assert found[:2] == (Outcome.SIZE_LIMIT, Cause.DATA_SET)


def test_a_loader_that_gives_no_batch_because_it_drops_what_is_no_whole_one_is_the_data_sets_limit() -> None:
    found = verdict(observed_batch=None, data_set_size=5, steps_executed=0, losses=())
    assert found is not None
    assert found[:2] == (Outcome.SIZE_LIMIT, Cause.DATA_SET)
    assert "got 5" in found[2]


def test_a_command_that_ends_early_is_asked_to_train_longer() -> None:
    found = verdict(steps_executed=2)
    assert found is not None
    assert found == (Outcome.SIZE_LIMIT, Cause.NO_STEPS, "the command ended by itself after 2 of 3 optimizer steps")


def test_a_command_that_never_steps_has_not_trained() -> None:
    found = judge(
        replace(GOOD, steps_executed=0, losses=()), batch_size=8, form=Form.SHORT, budget_bytes=1 << 30, device="cpu"
    )
    assert found is not None
    outcome, failure = found
    assert (outcome, failure.cause) == (Outcome.WORKLOAD_ERROR, Cause.NO_STEPS)
    assert failure.message == "the command ended by itself without a single optimizer step"
    assert "loss()" not in failure.hint, "that is a function of workload files"


def unwatched(folder: Path, *, peak_bytes: int | None = 1 << 20, log: str = "", **end: object) -> ProbeResult:
    """The judgement of a run without the hook."""
    (folder / "err").write_text(log)
    return judge_unwatched(
        Question(batch_size=8, form=Form.SHORT, reason=Reason.GROW, settings=Settings()),
        replace(ENDED, **end),  # type: ignore[arg-type]
        machine=MACHINE,
        peak_bytes=peak_bytes,
        budget_bytes=1 << 28,
        started_at=datetime.now(UTC),
        stdout=folder / "out",
        stderr=folder / "err",
    )


def test_an_unwatched_command_fits_if_it_ended_well_or_still_ran_at_its_deadline(tmp_path: Path) -> None:
    assert unwatched(tmp_path).fits
    assert unwatched(tmp_path, exit_code=None, signal=15, timed_out=True).fits
    assert unwatched(tmp_path, peak_bytes=None).fits, "nothing could be seen"


def test_an_unwatched_command_above_the_budget_is_not_safe_though_it_ended_well(tmp_path: Path) -> None:
    result = unwatched(tmp_path, peak_bytes=(1 << 28) + 1)
    assert result.failure is not None
    assert (result.outcome, result.failure.cause) == (Outcome.UNSAFE, Cause.OVER_BUDGET)
    assert unwatched(tmp_path, peak_bytes=1 << 28).fits


PRINTED = """Traceback (most recent call last):
  File "t.py", line 1, in <module>
RuntimeError: [enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory
"""


@pytest.mark.parametrize(
    ("log", "end", "outcome"),
    [
        ("", {"exit_code": 1}, Outcome.CRASHED),
        ("", {"exit_code": None, "signal": 9}, Outcome.CRASHED),
        ("", {"exit_code": None, "signal": 9, "host_oom_kills": 1}, Outcome.OUT_OF_MEMORY),
        ("", {"exit_code": 137, "host_oom_kills": 1}, Outcome.OUT_OF_MEMORY),
        (
            PRINTED,
            {"exit_code": 1},
            Outcome.OUT_OF_MEMORY,
        ),
    ],
)
def test_an_unwatched_command_that_failed_is_judged_by_its_log_and_end(
    tmp_path: Path, log: str, end: dict[str, Any], outcome: Outcome
) -> None:
    assert unwatched(tmp_path, peak_bytes=1, log=log, **end).outcome is outcome


EARLY: dict[str, object] = {"kind": "answer", "ending": True, "measurement": {"steps_executed": 1}}
RAISED: dict[str, object] = {**EARLY, "raised": [{"type": "builtins.KeyError", "bases": [], "text": "'a'"}]}
WHOLE: dict[str, object] = {"kind": "answer", "measurement": {"steps_executed": 3}}


@pytest.mark.parametrize(
    ("answer", "end", "kept"),
    [
        pytest.param(EARLY, {}, True, id="ended well, early"),
        pytest.param(EARLY, {"exit_code": None}, True, id="did not end in time after it"),
        pytest.param(EARLY, {"exit_code": 1}, False, id="ended badly"),
        pytest.param(EARLY, {"exit_code": None, "signal": 9}, True, id="killed by us"),
        pytest.param(EARLY, {"timed_out": True}, False, id="stopped at its deadline, and went quietly"),
        pytest.param(RAISED, {"exit_code": 1}, True, id="told why"),
        pytest.param(WHOLE, {"exit_code": 1}, True, id="ended by us, which its script did not expect"),
    ],
)
def test_what_was_seen_of_a_run_that_ended_by_itself_counts_only_where_it_ended_well(
    answer: dict[str, object], end: dict[str, object], kept: bool
) -> None:
    ended = read_ended(json.dumps({**asdict(ENDED), "answer": answer, **end}).encode())
    assert ended.answer is not None
    assert _without_early_end(ended).answer == (ended.answer if kept else None)


@pytest.mark.parametrize(
    ("text", "kills", "found"),
    [
        ("Command '['python', 't.py']' died with <Signals.SIGKILL: 9>.", 0, (Outcome.CRASHED, Cause.SIGNAL)),
        ("Command '['python', 't.py']' died with <Signals.SIGKILL: 9>.", 1, (Outcome.OUT_OF_MEMORY, Cause.HOST_MEMORY)),
        ("Command '['python', 't.py']' returned non-zero exit status 1.", 0, (Outcome.CRASHED, Cause.NO_ANSWER)),
    ],
)
def test_a_launcher_that_reports_how_its_process_ended_is_not_itself_at_fault(
    text: str, kills: int, found: tuple[Outcome, Cause]
) -> None:
    raised = Raised(type="subprocess.CalledProcessError", bases=("subprocess.CalledProcessError",), text=text)
    outcome, failure = classify(Evidence(raised=(raised,), exit_code=1, host_oom_kills=kills, capacity_bytes=1 << 30))
    assert (outcome, failure.cause) == found
