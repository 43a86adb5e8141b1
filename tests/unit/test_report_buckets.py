"""Answers by length bucket as a table, as lines for scripts, as advice and in the document."""

import json
from dataclasses import replace
from typing import Any

import jsonschema
import pytest

from autotune.errors import TimeRanOut, UsageError
from autotune.model import BucketResult
from autotune.report.buckets import bucket_advice, bucket_numbers, bucket_table, bucket_words
from autotune.report.document import bucket_document, bucket_fields, document, failure_document, read, schema, to_text
from autotune.report.records import search_lines
from autotune.units import GIB
from tests.cli.bucketed import BUCKETED, EMPTY, LONG, NOTHING_FITS, PARTLY, SHORT
from tests.cli.results import NOON, RECORD

VALIDATOR = jsonschema.Draft202012Validator(schema())


def test_the_table_has_a_line_for_each_bucket() -> None:
    assert bucket_table(BUCKETED) == (
        "length  samples  longest  max batch  samples/s  peak                       limit",
        "    64        0        -          -          -  -                          no sample is at most 64 long",
        "   512      900      480         27        150  38.8 GiB of 40 GiB (97 %)  28 refuted: out of memory in backward, step 2",
        "  2048    1,000     2000         24        150  34.6 GiB of 40 GiB (86 %)  28 refuted: out of memory in backward, step 2",
    )


def test_a_bucket_that_fits_nothing_and_those_that_time_was_not_left_for_are_told_apart() -> None:
    assert bucket_table(PARTLY)[-1].split() == ["2048", "1,000", "2000", "-", "-", "-", "nothing", "fits"]
    late = replace(PARTLY, rows=(*PARTLY.rows[:2], BucketResult(bucket=LONG, result=None, error=TimeRanOut("late"))))
    assert bucket_table(late)[-1].endswith("not searched: time ran out")


def test_scripts_get_length_and_batch() -> None:
    assert bucket_numbers(BUCKETED) == ("64 -", "512 27", "2048 24")


@pytest.mark.parametrize(
    ("bucket", "words"),
    [
        (EMPTY, "no sample is at most 64 long"),
        (SHORT, "900 samples, the longest 480"),
        (replace(SHORT, samples=1), "1 sample, the longest 480"),
        (replace(SHORT, samples=None, longer=None), "batches cut to 480"),
    ],
)
def test_what_is_in_a_bucket_in_words(bucket: Any, words: str) -> None:
    assert bucket_words(bucket) == words


def test_advice_says_which_bucket_it_is_of_unless_it_is_of_all() -> None:
    left_out, *others = bucket_advice(BUCKETED)
    assert left_out == (
        "1 of 1,001 samples are longer than 2048, the largest length bucket: nothing was measured for them, so leave them"
        " out of the training, or cut them"
    )
    assert others == [
        "length bucket 64 has no batch: no sample is at most 64 long",
        "a note on the data",
        "length bucket 2048: one on this",
    ]


def test_the_document_is_that_of_the_longest_bucket_with_all_beside_it() -> None:
    content = bucket_document(BUCKETED)
    widest = BUCKETED.widest
    assert widest is not None
    assert content.model_copy(update={"buckets": (), "warnings": ()}) == document(widest).model_copy(
        update={"warnings": ()}
    )
    assert content.warnings == bucket_advice(BUCKETED)
    assert content.asked is not None and content.asked.length_bucket == 2048, "what a check asks again"
    written = json.loads(to_text(content))
    VALIDATOR.validate(written)
    assert written["batch"]["max_batch"] == 24
    assert written["buckets"][0] == {
        "max_length": 64,
        "longest": None,
        "samples": 0,
        "max_batch": None,
        "refuted_at": None,
        "limited_by": None,
        "samples_per_second": None,
        "peak_bytes": None,
        "search_id": None,
        "error": None,
    }
    assert written["buckets"][1] == {
        "max_length": 512,
        "longest": 480,
        "samples": 900,
        "max_batch": 27,
        "refuted_at": 28,
        "limited_by": "device_memory",
        "samples_per_second": 150.0,
        "peak_bytes": 27 * 14 * GIB // 10 + GIB,
        "search_id": "5407",
        "error": None,
    }
    assert read(to_text(content)) == content


def test_a_document_without_an_answer_for_a_bucket_has_those_of_the_others() -> None:
    content = failure_document(NOTHING_FITS, created=NOON, ref="model.py", buckets=bucket_fields(PARTLY))
    written = json.loads(to_text(content))
    VALIDATOR.validate(written)
    assert (written["complete"], written["batch"]["max_batch"]) == (False, None)
    assert [(row["max_batch"], (row["error"] or {}).get("kind")) for row in written["buckets"]] == [
        (None, None),
        (27, None),
        (None, "nothing_fits"),
    ]


@pytest.mark.parametrize(
    ("number", "changes", "why"),
    [
        (1, {"max_length": 64}, "length bucket 64 comes after 64"),
        (1, {"refuted_at": 27}, "refuted_at 27 is not above max_batch 27"),
        (1, {"longest": None}, "max_batch is 27, and nothing was measured"),
        (1, {"max_batch": 0}, "greater than or equal to 1"),
    ],
)
def test_buckets_that_contradict_themselves_are_no_recommendation(
    number: int, changes: dict[str, object], why: str
) -> None:
    content = json.loads(to_text(bucket_document(BUCKETED)))
    content["buckets"][number] |= changes
    with pytest.raises(UsageError) as raised:
        read(json.dumps(content))
    assert why in raised.value.detail


def test_the_ledger_says_which_bucket_a_search_was_of() -> None:
    record = replace(RECORD, plan=replace(RECORD.plan, length_bucket=512))
    assert "length bucket  512" in search_lines(record, ())
    assert "length bucket" not in search_lines(RECORD, ())
