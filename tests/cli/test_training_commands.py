"""A training command behind ``--``: what is refused and with what hint, what the report and the document say to type."""

import json
from dataclasses import replace

import jsonschema
import pytest

from autotune import api
from autotune.model import Precision, SearchResult, Settings, Source
from autotune.report.commands import training_command
from autotune.report.document import document, schema, to_text
from autotune.report.table import report
from tests.cli.conftest import Invoke
from tests.cli.results import PLAN, RESULT

COMMAND = Source(
    ref="python 'my train.py' '{batch}' --out '{scratch}'",
    command=("python", "my train.py", "{batch}", "--out", "{scratch}"),
    templates=(("precision", "--amp {value}"), ("accumulate", "env:ACCUMULATE")),
)
REAL_PLAN = api.plan
OF_COMMAND = replace(RESULT, plan=replace(PLAN, source=COMMAND))


def recommending(settings: Settings) -> SearchResult:
    """The search of the command with these settings for its answer, beside the user's own."""
    probes = tuple(replace(probe, settings=settings) for probe in RESULT.probes)
    return replace(OF_COMMAND, answer=replace(RESULT.answer, settings=settings), probes=(*RESULT.probes, *probes))


@pytest.fixture
def planned(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """With the real plan before the fake search."""
    monkeypatch.setattr(api, "plan", REAL_PLAN)
    return invoke


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        ("search", "nothing to train was given", "autotune search model.py, or a training command behind --:"),
        ("max-batch -q", "nothing to train was given", "-- python train.py --batch-size {batch}"),
        ("inspect --", "nothing to train was given", "autotune inspect model.py"),
        ("search -- sh t.sh", "the command has no {batch} in it", "write {batch} where it takes the batch size"),
        ("max-batch -- sh {btach}", "{btach} is no placeholder", "did you mean {batch}?"),
        (
            "inspect -- pyhton-of-nobody {batch}",
            "pyhton-of-nobody: no such program",
            "give the whole command behind --",
        ),
        ("search model.py --set batch=env:B", "--set 'batch=env:B' is for training commands", "behind --"),
        ("search --set batch -- sh t.sh", "--set 'batch' is no NAME=TEMPLATE", "batch=env:BATCH_SIZE"),
        ("search --set precison=-p -- sh {batch}", "precison", "precision"),
        ("search --precision bf16 -- sh {batch}", "the command is not told of precision", "--set 'precision="),
        ("search --accumulate 2 -- sh {batch}", "the command is not told of accumulate", "--set 'accumulate="),
        ("search --effective-batch 8 -- sh {batch}", "the command is not told of accumulate", "--set 'accumulate="),
        ("search --allow compile -- sh {batch}", "the command is not told of compile", "--set 'compile="),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_to_type(planned: Invoke, line: str, message: str, hint: str) -> None:
    ended = planned(*line.split())
    assert (ended.code, ended.out) == (2, "")
    error, *hints = ended.err.strip().splitlines()
    assert error.startswith("error: ") and message in error
    assert hint in " ".join(hints)


def test_a_refused_command_leaves_its_document_under_json(planned: Invoke) -> None:
    ended = planned("search", "--json", "--", "sh", "{btach}")
    content = json.loads(ended.out)
    jsonschema.validate(content, schema())
    assert (ended.code, content["error"]["kind"], content["workload"]["ref"]) == (2, "usage", "sh '{btach}'")


def test_the_help_of_every_search_shows_both_ways(invoke: Invoke) -> None:
    for name in ("search", "max-batch", "inspect"):
        text = " ".join(invoke(name, "--help").out.split())
        assert "a training command in place of MODEL" in text
        assert "-- python train.py --bs {batch}" in text
        assert "--set" in text and "batch=env:BATCH_SIZE" in text


def test_the_document_holds_the_command_that_trains_with_the_recommendation() -> None:
    settings = Settings(precision=Precision.BF16, accumulate=2, allocator="expandable_segments:True")
    result = recommending(settings)
    conf = "expandable_segments:True"
    command = (
        f"PYTORCH_CUDA_ALLOC_CONF={conf} PYTORCH_ALLOC_CONF={conf} ACCUMULATE=2 "
        "python 'my train.py' 24 --out '{scratch}' --amp bf16"
    )
    assert training_command(result) == command
    content = json.loads(to_text(document(result)))
    jsonschema.validate(content, schema())
    assert content["workload"]["command"] == command
    assert content["batch"]["micro_batch"] == 24


def test_a_workload_file_has_no_command_and_a_document_without_one_is_read() -> None:
    content = json.loads(to_text(document(RESULT)))
    assert content["workload"]["command"] is None
    del content["workload"]["command"]
    jsonschema.validate(content, schema())


def test_the_report_ends_with_the_command_to_type() -> None:
    assert report(OF_COMMAND, output="autotune.json")[-1].lines == (
        "train with batch size 24 (batch.micro_batch in autotune.json)",
        "python 'my train.py' 24 --out '{scratch}'",
    )


def test_changed_settings_of_a_command_are_said_not_to_be_compared() -> None:
    text = "that these settings train the same was not checked"
    changed = recommending(Settings(precision=Precision.BF16))
    minds = [line for block in report(changed) if block.title == "mind" for line in block.lines]
    assert any(text in line for line in minds)
    assert not any(text in line for block in report(OF_COMMAND) for line in block.lines)
