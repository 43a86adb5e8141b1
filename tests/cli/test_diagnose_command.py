"""``autotune diagnose``: options, streams, exit codes."""

import json
from dataclasses import replace
from typing import Any

import pytest

from autotune import api
from autotune.errors import NothingFits, UsageError
from autotune.model import Findings
from tests.cli.conftest import Invoke
from tests.cli.results import BUDGET, MACHINE, WORKLOAD
from tests.unit.leak_samples import CLEAN, FINDINGS


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What ``api.diagnose`` was called with; ``answer`` may be changed."""
    seen: dict[str, Any] = {"answer": FINDINGS}

    def diagnose(ref: str, **options: Any) -> Findings:
        seen.update(options, ref=ref)
        options["observer"].found(WORKLOAD, MACHINE, BUDGET)
        options["observer"].note("leaks: training at batch 8 ...")
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
