"""A prediction as text, lines and document: every number says whether the ranks ran."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from autotune.errors import NothingFits, UsageError
from autotune.report.document import document, read, to_text
from autotune.report.predicted import no_way, prediction_document, prediction_lines, prediction_report
from autotune.report.table import headline
from tests.cli.results import RESULT
from tests.unit.predicted_samples import DDP, FSDP, MARKED, PREDICTED, VERIFIED

NOW = datetime(2026, 11, 30, tzinfo=UTC)


def test_each_way_says_its_batch_the_samples_of_a_step_and_that_it_was_not_run() -> None:
    head, table, *_ = prediction_report(PREDICTED).split("\n\n")
    assert head.startswith("8 ranks, each on a device like NVIDIA H200") and head.endswith(": predicted, not run")
    ddp, fsdp, zero = table.splitlines()[1:]
    assert ddp.split()[:3] == ["ddp", "27", "216"] and ddp.endswith("; predicted, not run")
    assert "nothing fits: batch 1 is out of memory in phase backward; 16 ranks are predicted" in fsdp
    assert "CUDA" not in fsdp
    assert "the workload fails at batch 1: 2 parameters; predicted, not run" in zero


def test_what_is_assumed_of_communicators_is_said() -> None:
    assert "- 512 MiB of each device are taken to be for communicators between the ranks (NCCL)" in prediction_report(
        PREDICTED
    )


def test_a_verified_number_is_the_one_that_ran_beside_the_one_that_was_predicted() -> None:
    assert VERIFIED.result is not None
    more = replace(VERIFIED.result, answer=replace(VERIFIED.result.answer, max_batch=28, refuted_at=29))
    for result, words in ((VERIFIED.result, "as predicted"), (more, "28 was predicted (+3.7 %)")):
        found = replace(PREDICTED, ways=(replace(VERIFIED, result=result),))
        text = prediction_report(found)
        assert f"verified on 8 GPUs: {words}" in text and "not run" not in text
        assert prediction_lines(found) == ("ddp 27 verified",)


def test_that_ranks_ran_and_failed_is_no_batch() -> None:
    failed = replace(DDP, real_error=NothingFits("nothing fits: batch 1 is out of memory: no"))
    assert prediction_lines(replace(PREDICTED, ways=(failed,))) == ("ddp - verified",)
    assert "verified on 8 GPUs: 27 was predicted" in prediction_report(replace(PREDICTED, ways=(failed,)))


def test_scripts_get_a_line_for_each_way() -> None:
    assert prediction_lines(PREDICTED) == ("ddp 27 predicted", "fsdp - predicted", "zero - predicted")


def test_no_way_says_how_many_devices_would_do() -> None:
    found = replace(PREDICTED, ways=(FSDP,))
    assert found.error is FSDP.error
    error = no_way(found)
    assert error.message.startswith("predicted, not run: with 8 ranks nothing fits in ")
    assert error.hint == "predicted to be enough for the smallest batch: 16 with --parallel fsdp"
    assert "weights 3 GiB" in error.detail
    assert no_way(replace(found, ways=(replace(FSDP, enough=None),))).hint == "try --precision bf16"


def test_the_document_is_refused_by_all_that_reads_recommendations() -> None:
    content = prediction_document(PREDICTED, NOW)
    assert [(way.status, way.max_batch, way.enough_ranks) for way in content.ways] == [
        ("predicted, not run", 27, None),
        ("predicted, not run", None, 16),
        ("predicted, not run", None, None),
    ]
    assert content.ways[0].effective == 216 and content.ways[0].memory is not None
    with pytest.raises(UsageError, match="a prediction for 8 ranks, which were not run"):
        read(to_text(content))


def test_a_predicted_search_makes_no_recommendation_and_says_what_it_is() -> None:
    result = replace(RESULT, plan=MARKED)
    with pytest.raises(UsageError, match="predicted what 8 ranks need, and they did not run"):
        document(result)
    assert headline(result).startswith("max batch 27 of each of 8 ranks - predicted, not run; 28 refuted")
