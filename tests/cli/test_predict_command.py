"""``autotune predict``: options, streams, exit codes."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from autotune import api
from autotune.cli.app import run
from autotune.errors import WorkloadError
from autotune.model import Plan, Predicted
from autotune.report.document import document, prediction_schema, to_text
from tests.cli.conftest import FakeApi, Invoke
from tests.cli.results import RESULT
from tests.unit.predicted_samples import FSDP, PREDICTED, VERIFIED, ZERO


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, fake: FakeApi) -> dict[str, Any]:
    """What ``api.predict`` was called with; ``answer`` may be changed."""
    seen: dict[str, Any] = {"answer": PREDICTED}

    def predict(plan: Plan, **options: Any) -> Predicted:
        seen.update(options, plan=plan, asked=fake.calls["plan"])
        answer = seen["answer"]
        assert isinstance(answer, Predicted)
        return answer

    monkeypatch.setattr(api, "predict", predict)
    return seen


def test_a_pipe_gets_a_line_for_each_way_and_the_rest_on_stderr(invoke: Invoke, asked: dict[str, Any]) -> None:
    ended = invoke("predict", "model.py", "--ranks", "8", "--memory-limit", "24GiB", "--fresh")
    assert (ended.code, ended.out) == (0, "ddp 27 predicted\nfsdp - predicted\nzero - predicted\n")
    assert "predicted, not run" in ended.err
    assert (asked["asked"]["ranks"], asked["asked"]["parallel"], asked["asked"]["recommend"]) == ("8", "default", False)
    assert asked["fresh"] is True


def test_programs_get_one_document(invoke: Invoke, asked: dict[str, Any]) -> None:
    ended = invoke("predict", "model.py", "--ranks", "8", "--json", "-q")
    assert (ended.code, ended.err) == (0, "")
    assert json.loads(ended.out)["kind"] == "prediction"


def test_the_schema_of_that_document_is_printed(invoke: Invoke, asked: dict[str, Any]) -> None:
    schema = json.loads(invoke("schema", "--of", "prediction").out)
    check = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())
    check.check_schema(schema)
    asked["answer"] = replace(PREDICTED, ways=(VERIFIED, FSDP, ZERO))
    content = json.loads(invoke("predict", "model.py", "--ranks", "8", "--json", "-q").out)
    check.validate(content)
    for name in content:
        assert not check.is_valid({key: value for key, value in content.items() if key != name}), name
    assert not check.is_valid(json.loads(to_text(document(RESULT))))
    assert not jsonschema.Draft202012Validator(json.loads(invoke("schema").out)).is_valid(content)


def test_a_document_that_has_no_schema_is_named_with_those_that_have(invoke: Invoke) -> None:
    ended = invoke("schema", "--of", "report")
    assert ended.code == 2
    assert "'report'" in ended.err and "'recommendation', 'prediction'" in ended.err


def test_what_is_printed_where_no_prediction_came_about_obeys_its_schema(
    invoke: Invoke, asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(plan: Plan, **_: Any) -> Predicted:
        raise WorkloadError("the workload fails at batch 1: no repeated blocks")

    monkeypatch.setattr(api, "predict", fail)
    ended = invoke("predict", "model.py", "--ranks", "8", "--json", "-q")
    assert ended.code == 4
    jsonschema.validate(json.loads(ended.out), prediction_schema())


def test_that_no_way_fits_is_exit_code_3_after_what_was_found(invoke: Invoke, asked: dict[str, Any]) -> None:
    asked["answer"] = replace(PREDICTED, ways=(FSDP,))
    ended = invoke("predict", "model.py", "--ranks", "8", "-q")
    assert (ended.code, ended.out) == (3, "fsdp - predicted\n")
    assert "16 with --parallel fsdp" in ended.err


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("model.py",), "--ranks 8"),
        (("model.py", "--ranks", "some"), "ranks is 'some'"),
        (("model.py", "--ranks", "2", "--parallel", "tensor"), "tensor parallel cannot be predicted"),
        (("--ranks", "2", "--", "python", "train.py", "--bs", "{batch}"), "starts its own ranks"),
        (("model.py", "--ranks", "2", "--output", "o.json"), "--output"),
    ],
)
def test_what_makes_no_sense_is_exit_code_2(
    argv: tuple[str, ...],
    says: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text("def make_model(): ...")
    assert run(["predict", *argv, "--storage", "ledger.sqlite3"]) == 2
    assert says in capsys.readouterr().err
