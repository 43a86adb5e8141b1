"""An answer as values and as Markdown, in which other people's text has no meaning."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.errors import CheckFailed, NothingFits
from autotune.report.document import document, failure_document
from autotune.report.fields import Change, Check
from autotune.report.outputs import NAMES, outputs, summary
from autotune.report.quoted import block, code
from autotune.units import GIB
from tests.cli.results import NOON, RESULT, WORKLOAD

FAILED = failure_document(NothingFits("batch 1 does not fit", hint="a smaller model"), created=NOON, ref="model.py")
FOUND = Check(
    created=datetime(2026, 3, 5, tzinfo=UTC),
    changes=(Change(what="Python", then="3.12.3", here="3.13.1", stale=False, meaning="no matter"),),
    batch=24,
    outcome="fits",
    steps=8,
    peak_bytes=30 * GIB,
    budget_bytes=39 * GIB,
    search_id="c0ffee",
)


def test_an_answer_has_every_value() -> None:
    assert outputs(document(RESULT)) == {
        "safe": "true",
        "max_batch": "27",
        "micro_batch": "24",
        "accumulate": "1",
        "effective": "24",
        "samples_per_second": "150.0",
        "peak_bytes": str(24 * 14 * GIB // 10 + GIB),
        "budget_bytes": str(40 * GIB),
        "search_id": "ab12cd34ef56",
        "complete": "true",
        "error": "",
    }
    assert tuple(outputs(document(RESULT))) == NAMES


def test_without_an_answer_there_is_no_number() -> None:
    assert outputs(FAILED) == {"safe": "false", "error": "nothing_fits"}


def test_a_check_says_what_it_saw_now() -> None:
    values = outputs(document(RESULT).model_copy(update={"check": FOUND}))
    assert (values["peak_bytes"], values["budget_bytes"]) == (str(30 * GIB), str(39 * GIB))
    compared = FOUND.model_copy(update={"batch": None, "outcome": None, "peak_bytes": None})
    values = outputs(document(RESULT).model_copy(update={"check": compared}))
    assert values["peak_bytes"] == str(24 * 14 * GIB // 10 + GIB), "nothing was seen: what the file says"


def test_a_summary_has_the_answer_and_what_changed() -> None:
    text = summary("autotune check", document(RESULT).model_copy(update={"check": FOUND}))
    assert text.startswith("### autotune check\n\n**Train with batch 24**: `model.py`\n")
    assert "| checked now | batch 24 fits, peak 30 GiB of 39 GiB |\n" in text
    assert "- `Python: 3.12.3 in the file, 3.13.1 here - no matter`" in text


def test_a_summary_of_an_error_has_its_message_detail_and_hint() -> None:
    text = summary("autotune search", FAILED, "weights  9 GiB")
    assert "**No safe answer** (nothing_fits): `model.py`" in text
    assert "```text\nbatch 1 does not fit\nweights  9 GiB\n```" in text
    assert text.endswith("Next: `a smaller model`\n")


def test_text_of_others_stays_text() -> None:
    ref = "a`|<img src=x onerror=alert(1)>|\n# heading\n::error::x.py"
    text = summary("autotune search", document(replace(RESULT, workload=replace(WORKLOAD, ref=ref))))
    assert "``a`|<img src=x onerror=alert(1)>| # heading ::error::x.py``" in text
    failed = failure_document(CheckFailed("```\n<b>out</b>\n````"), created=NOON, ref=ref)
    assert "`````text\n```\n<b>out</b>\n````\n`````" in summary("t", failed)


@given(st.text())
def test_code_within_a_line_is_one_line_that_no_text_can_end(text: str) -> None:
    made = code(text)
    assert len(made.splitlines()) == 1
    fence = made[: len(made) - len(made.lstrip("`"))]
    assert made.endswith(fence) and fence not in made[len(fence) : -len(fence)]


@given(st.text())
def test_no_line_of_a_block_can_end_it(text: str) -> None:
    fence, *inside, end = block(text)
    assert end + "text" == fence
    assert not any(end in line for line in inside)


@pytest.mark.parametrize("length", [30_000])
def test_a_page_is_not_filled_by_one_message(length: int) -> None:
    assert len("\n".join(block("x" * length))) < 20_100
