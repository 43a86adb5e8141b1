"""What is said of evaluation: in the report, the document, the ledger's listing and the advice."""

import json
from dataclasses import replace

import jsonschema
import pytest

from autotune.errors import UsageError
from autotune.model import Phase, SearchResult
from autotune.report.advice import advice
from autotune.report.baseline import baseline
from autotune.report.document import document, read, schema, to_text
from autotune.report.evaluated import evaluation_words
from autotune.report.page.build import build_view
from autotune.report.page.markdown import render_markdown
from autotune.report.probes import probe_line, probe_table
from autotune.report.records import search_lines
from autotune.report.table import render, report
from tests.cli.evaluated import AS_ASKED, AS_MUCH, NARROWER, NONE, NOTHING, evaluating, paired
from tests.cli.results import RECORD, RESULT, failing, fitting

CURES = "give the evaluation smaller batches, run it under torch.no_grad(), and move outputs to the CPU as they come"


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (NARROWER, "max batch 15 - 16 refuted: out of memory in evaluate"),
        (NOTHING, "fits at no batch - 1 failed: out of memory in evaluate"),
        (AS_MUCH, "max batch 27 - larger ones were not tried"),
        (AS_ASKED, "max batch 48 - no larger one was asked for"),
        (RESULT, "not probed"),
    ],
    ids=["narrower", "nothing", "as much", "as asked", "older version"],
)
def test_c11_the_report_has_a_line_for_evaluation(result: SearchResult, words: str) -> None:
    assert evaluation_words(result) == words
    lines = render(report(result)).splitlines()
    assert f"evaluation   {words}" in lines


@pytest.mark.parametrize(
    "result",
    [NONE, replace(NONE, plan=replace(NONE.plan, source=replace(NONE.plan.source, command=("python", "train.py"))))],
    ids=["file", "command"],
)
def test_that_evaluation_was_not_probed_is_said_once(result: SearchResult) -> None:
    record = replace(RECORD, plan=result.plan, workload=result.workload)
    for text in (render(report(result)), render_markdown(build_view(record, result.probes))):
        lines = [line for line in text.splitlines() if "evaluation" in line.lower()]
        assert len(lines) == 1 and "evaluation was not probed: " in lines[0]


def test_c11_the_narrower_one_is_named_with_what_to_do() -> None:
    assert advice(NARROWER) == (
        f"evaluation takes less than training: 15, where 27 train (out of memory in evaluate at 16): {CURES}",
    )


def test_c11_an_evaluation_that_fits_nowhere_is_said_plainly() -> None:
    (text,) = advice(NOTHING)
    assert text == (
        "training is safe at batch 27, its evaluation at no batch: out of memory in evaluate at batch 1, "
        f"and a training that evaluates ends there: {CURES}"
    )


def test_c11_a_size_asked_for_that_does_not_fit_is_not_blamed_on_training() -> None:
    result = replace(NARROWER, plan=replace(RESULT.plan, eval_batch=64))
    (text,) = advice(result)
    assert text == (
        "evaluation at batch 64, as --eval-batch asks, does not fit; 15 is the most (out of memory in evaluate at 16), "
        f"and training is not to blame: {CURES}"
    )


@pytest.mark.parametrize("result", [AS_MUCH, AS_ASKED], ids=["as much", "as asked"])
def test_nothing_is_advised_where_evaluation_is_not_in_the_way(result: SearchResult) -> None:
    assert advice(result) == ()


def test_c11_the_document_has_both_limits() -> None:
    content = json.loads(to_text(document(NARROWER)))
    assert (content["batch"]["max_batch"], content["batch"]["refuted_at"]) == (27, 28)
    assert content["evaluation"] == {
        "max_batch": 15,
        "refuted_at": 16,
        "limited_by": "device_memory",
        "failure": "out of memory in evaluate: CUDA out of memory. Tried to allocate 2.30 GiB.",
    }


def test_c11_a_document_without_an_evaluation_says_that_it_was_not_probed() -> None:
    content = json.loads(to_text(document(NONE)))
    assert content["evaluation"] is None
    assert any(text.startswith("evaluation was not probed") for text in content["warnings"])


@pytest.mark.parametrize("result", [NARROWER, NOTHING, AS_MUCH, AS_ASKED, NONE])
def test_every_document_obeys_the_schema_and_comes_back(result: SearchResult) -> None:
    text = to_text(document(result))
    jsonschema.Draft202012Validator(schema()).validate(json.loads(text))
    assert read(text) == document(result)


def test_a_document_of_before_evaluation_was_told_apart_is_read() -> None:
    content = json.loads(to_text(document(NARROWER)))
    del content["evaluation"]
    assert read(json.dumps(content)).evaluation is None


def test_a_refutation_that_is_not_above_the_limit_is_refused() -> None:
    content = json.loads(to_text(document(NARROWER)))
    content["evaluation"]["refuted_at"] = 15
    with pytest.raises(UsageError) as raised:
        read(json.dumps(content))
    assert "refuted_at 15 is not above max_batch 15" in raised.value.detail


def test_probes_say_at_which_size_they_evaluated_where_that_is_not_their_own() -> None:
    assert "  evaluation at 15  " in probe_line(paired(15), 3)
    assert "  no evaluation  " in probe_line(replace(paired(15), evaluate_at=0), 3)
    assert "evaluation" not in probe_line(fitting(4), 3)
    table = probe_table([fitting(4), evaluating(16, fails=True), paired(15), replace(paired(15), evaluate_at=0)])
    assert [line.split("  ")[-1].strip() for line in table] == ["evaluation", "-", "at 16", "at 15", "none"]
    assert "eval " in table[2] and "out of memory in evaluate" in table[2]


def test_a_search_in_the_ledger_shows_its_evaluation() -> None:
    def line(result: SearchResult) -> str:
        shown = search_lines(replace(RECORD, answer=result.answer), result.probes)
        return next(line for line in shown.splitlines() if line.startswith("evaluation"))

    assert line(NARROWER) == "evaluation   max batch 15, 16 refuted: the device's memory was used up"
    assert line(NOTHING) == "evaluation   fits at no batch: the device's memory was used up"
    assert line(AS_MUCH) == "evaluation   max batch 27: larger ones were not tried"
    assert line(NONE) == "evaluation   not probed"


def test_the_certificate_is_the_long_probe_with_the_evaluation_of_the_answer() -> None:
    assert NARROWER.certificate.evaluated_at == 15
    later = replace(NARROWER, probes=(*NARROWER.probes, paired(12)))
    assert later.certificate.evaluated_at == 15


def test_the_refutation_of_training_is_none_of_evaluation_s() -> None:
    failed = replace(failing(28, phase=Phase.EVALUATE), evaluate_at=None)
    result = replace(NARROWER, probes=(*NARROWER.probes, failed))
    assert result.refutation is not None and result.refutation.failure is not None
    assert result.refutation.failure.phase is Phase.BACKWARD


def test_sizes_at_which_only_the_evaluation_failed_count_for_what_the_own_settings_reach() -> None:
    failed = replace(failing(24, phase=Phase.EVALUATE, step=None), evaluate_at=None)
    result = replace(NARROWER, probes=(failed, *NARROWER.probes))
    best = baseline(result)
    assert best is not None and best.batch_size in (24, 27)
    assert baseline(replace(result, probes=NARROWER.probes)) == best
