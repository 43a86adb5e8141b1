import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.report.document import read
from tests.cli.conftest import FakeApi, Invoke
from tests.cli.results import RESULT, WORKLOAD


def _pretend_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")


def test_a_pipe_gets_just_the_number(invoke: Invoke, fake: FakeApi) -> None:
    ended = invoke("max-batch", "model.py")
    assert (ended.code, ended.out) == (0, "27\n")
    assert fake.calls["plan"]["recommend"] is False


def test_no_file_is_written_unless_asked_for(invoke: Invoke) -> None:
    invoke("max-batch", "model.py")
    assert list(Path().iterdir()) == []
    invoke("max-batch", "model.py", "--output", "o.json")
    assert read(Path("o.json").read_text()).batch.max_batch == 27


def test_a_terminal_gets_a_sentence(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    _pretend_a_terminal(monkeypatch)
    ended = invoke("max-batch", "model.py")
    assert ended.out.startswith("max batch 27 - certified by 8 steps in a fresh process; 28 refuted: ")


def test_quiet_on_a_terminal_is_the_number_too(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    _pretend_a_terminal(monkeypatch)
    ended = invoke("max-batch", "model.py", "-q")
    assert (ended.out, ended.err) == ("27\n", "")


def test_warnings_do_not_get_into_the_number(invoke: Invoke, fake: FakeApi) -> None:
    fake.result = replace(RESULT, workload=replace(WORKLOAD, evaluates=False))
    ended = invoke("max-batch", "model.py")
    assert ended.out == "27\n"
    assert ended.err.endswith("- evaluation was not probed: the workload has no evaluate(model, batch)\n")


def test_json_is_the_document(invoke: Invoke) -> None:
    ended = invoke("max-batch", "model.py", "--json")
    assert json.loads(ended.out)["batch"]["max_batch"] == 27
