"""Reports as Markdown: what a person pastes into a pull request, and no text of the user's that becomes markup there."""

import re
from dataclasses import replace

import pytest

from autotune.model import Cause, Outcome, SearchState
from autotune.report.page.build import build_view
from autotune.report.page.markdown import render_markdown
from tests.cli.results import PROBES, RECORD, failing
from tests.unit.report_pages import hostile, many, tuned, without_answer


def test_the_answer_comes_first() -> None:
    lines = render_markdown(build_view(*tuned())).splitlines()
    assert lines[0] == "## autotune: `model.py`"
    assert lines[2] == "**Train with batch size 26**, with `precision=bf16`."
    assert "| speed | 306 samples/s, 2.04\N{MULTIPLICATION SIGN} of your own \\(150\\) |" in lines


def test_every_table_has_as_many_cells_in_each_row() -> None:
    for view in (build_view(*tuned()), build_view(*hostile()), build_view(RECORD, PROBES)):
        widths: set[int] = set()
        for line in [*render_markdown(view).splitlines(), ""]:
            if line.startswith("|"):
                widths.add(len(re.findall(r"(?<!\\)\|", line)))
            else:
                assert len(widths) <= 1, line
                widths = set()


def test_nothing_of_the_users_becomes_markup() -> None:
    text = render_markdown(build_view(*hostile()))
    blocks = re.split(r"^(`{3,})text$.*?^\1$", text, flags=re.MULTILINE | re.DOTALL)
    outside = re.sub(r"(`+).*?\1", "", "".join(blocks[::2]))  # code blocks and spans show what is in them as it is
    assert set(re.findall(r"</?(\w+)", outside)) <= {"details", "summary"}
    assert "http://" not in outside and "@" not in outside


def test_a_fence_is_longer_than_any_run_of_backticks_within() -> None:
    traceback = "```\n</details>\n# heading\n````"
    failed = failing(1)
    assert failed.failure is not None
    failed = replace(
        failed,
        outcome=Outcome.WORKLOAD_ERROR,
        failure=replace(failed.failure, cause=Cause.USER_BUG, traceback=traceback),
    )
    text = render_markdown(without_answer((failed,)))
    assert f"`````text\n{traceback}\n`````" in text


@pytest.mark.parametrize("state", [SearchState.INTERRUPTED, SearchState.RUNNING, SearchState.NO_ANSWER])
def test_searches_without_an_answer_say_what_is_next(state: SearchState) -> None:
    text = render_markdown(without_answer((failing(1),), state))
    assert "Next: " in text and "Train with" not in text


def test_thousands_of_probes_fit_a_comment() -> None:
    text = render_markdown(build_view(*many(3000)))
    assert len(text) < 65_536
    assert "The last 60 of 1000 rows." in text
