"""``autotune diagnose``: options, streams, exit codes."""

import json
import signal
from dataclasses import replace
from typing import Any

import pytest

from autotune import api
from autotune.cli.signals import Stopped
from autotune.errors import NothingFits, UsageError
from autotune.model import Findings, Leaks, Section, Unanswered
from tests.cli.conftest import Invoke
from tests.cli.results import BUDGET, MACHINE, WORKLOAD
from tests.unit.leak_samples import CLEAN, FINDINGS

CRASHED = Unanswered(section=Section.COMPOSITION, kind="environment", exit_code=5, message="it crashed")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What ``api.diagnose`` was called with; ``answer`` may be changed."""
    seen: dict[str, Any] = {"answer": FINDINGS}

    def diagnose(ref: str, **options: Any) -> Findings:
        seen.update(options, ref=ref)
        options["observer"].found(WORKLOAD, MACHINE, BUDGET)
        options["observer"].note("leaks: training at batch 8 ...")
        for findings in seen.get("kept", ()):
            options["keep"](findings)
        if isinstance(seen["answer"], BaseException):
            raise seen["answer"]
        assert isinstance(seen["answer"], Findings)
        return seen["answer"]

    monkeypatch.setattr(api, "diagnose", diagnose)
    return seen


def test_a_leak_is_printed_and_is_exit_code_6(invoke: Invoke, asked: dict[str, Any]) -> None:
    ended = invoke("diagnose", "model.py", "--batch", "8", "--steps", "40", "--only", "leaks", "--", "--depth", "3")
    assert ended.code == 6
    assert ended.out.startswith("leak: memory grows by 91 KiB a step")
    assert "training at batch 8" in ended.err and "error" not in ended.err
    assert (asked["ref"], asked["batch"], asked["steps"]) == ("model.py", 8, 40)
    assert (asked["only"], asked["script_args"]) == (("leaks",), ("--depth", "3"))


def test_no_leak_is_exit_code_0(invoke: Invoke, asked: dict[str, Any]) -> None:
    asked["answer"] = replace(FINDINGS, leaks=CLEAN)
    ended = invoke("diagnose", "model.py", "-q")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("no leak")


def test_programs_get_one_document(invoke: Invoke, asked: dict[str, Any]) -> None:
    ended = invoke("diagnose", "model.py", "--json")
    assert ended.code == 6
    assert json.loads(ended.out)["leaks"]["ends_at_step"] == 8159


def test_a_batch_that_does_not_fit_is_exit_code_3(invoke: Invoke, asked: dict[str, Any]) -> None:
    asked["answer"] = NothingFits("training at batch 8 fails", hint="name a smaller one: --batch 1")
    ended = invoke("diagnose", "model.py")
    assert (ended.code, ended.out) == (3, "")
    assert "--batch 1" in ended.err


@pytest.mark.parametrize(("found", "code"), [(CLEAN, 5), (FINDINGS.leaks, 6)])
def test_a_section_without_an_answer_is_its_own_exit_code_unless_something_is_wrong(
    invoke: Invoke, asked: dict[str, Any], found: Leaks, code: int
) -> None:
    asked["answer"] = replace(FINDINGS, leaks=found, unanswered=(CRASHED, replace(CRASHED, exit_code=3)))
    ended = invoke("diagnose", "model.py")
    assert ended.code == code
    assert ended.out.startswith(("no leak", "leak: ")) and "composition: no answer: it crashed" in ended.out


@pytest.mark.parametrize(
    ("stop", "code", "name"), [(Stopped(signal.SIGTERM), 143, "SIGTERM"), (KeyboardInterrupt(), 130, "SIGINT")]
)
def test_stopped_between_sections_it_shows_what_was_found_and_how_to_look_at_the_rest(
    invoke: Invoke, asked: dict[str, Any], stop: BaseException, code: int, name: str
) -> None:
    rest = replace(CRASHED, kind="interrupted", exit_code=130, message="not looked at")
    asked["kept"] = (replace(FINDINGS, unanswered=(rest, rest)), replace(FINDINGS, unanswered=(rest,)))
    asked["answer"] = stop
    ended = invoke("diagnose", "model.py", "--json")
    assert ended.code == code
    found = json.loads(ended.out)
    assert found["leaks"]["ends_at_step"] == 8159
    assert [one["message"] for one in found["unanswered"]] == ["not looked at"]
    assert f"stopped by {name}" in ended.err and "--only composition" in ended.err


def test_stopped_before_anything_was_found_it_says_only_that(invoke: Invoke, asked: dict[str, Any]) -> None:
    asked["answer"] = Stopped(signal.SIGINT)
    ended = invoke("diagnose", "model.py")
    assert (ended.code, ended.out) == (130, "") and "stopped by SIGINT" in ended.err


def test_a_training_command_is_refused(invoke: Invoke) -> None:
    ended = invoke("diagnose", "--", "python", "train.py")
    assert ended.code == 2
    assert "cannot be diagnosed" in ended.err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"only": ("leaks,colours",)}, "'colours' is not known"),
        ({"batch": 0}, "batch is 0"),
        ({"steps": True}, "steps is True"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_starts(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        api.diagnose("model.py", **options)
