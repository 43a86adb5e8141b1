"""Reports as Markdown: what a person pastes into a pull request, and no text of the user's that becomes markup there."""

import re
from dataclasses import replace

import pytest

from autotune.model import Cause, Form, Outcome, SearchState
from autotune.report.page.build import build_view
from autotune.report.page.html import render_html
from autotune.report.page.markdown import render_markdown
from tests.cli.results import PROBES, RECORD, failing
from tests.unit.report_pages import BF16, hostile, many, tuned, without_answer


def test_the_answer_comes_first() -> None:
    lines = render_markdown(build_view(*tuned())).splitlines()
    assert lines[0] == "## autotune: `model.py`"
    assert lines[2] == "**Train with batch size 26**, with `precision=bf16`."
    speed = "306 samples/s, 2.04 times as fast as your own settings (150 samples/s at batch 27)"
    assert f"| speed | {speed} |" in lines


def test_own_settings_that_were_never_timed_are_not_what_the_speed_is_of() -> None:
    record, probes = tuned()
    timed = tuple(p for p in probes if p.settings != record.plan.settings or p.form is Form.COMPARE)
    text = render_markdown(build_view(record, timed))
    assert "| speed | 306 samples/s; your own settings were not timed |" in text
    untimed = replace(PROBES[5].measurement, step_seconds=())
    view = build_view(record, tuple(replace(p, measurement=untimed) if p.settings == BF16 else p for p in probes))
    assert "| speed | not timed |" in render_markdown(view) and "these settings were not timed" in render_html(view)
    assert "with `precision=bf16`" in text and "with your own settings" not in text.partition("<details>")[0]


def test_one_size_is_the_recommended_one_and_the_others_have_the_same_settings() -> None:
    rows = [line for line in render_markdown(build_view(RECORD, PROBES)).splitlines() if line.startswith("| as you")]
    roles = {line.split(" | ")[1]: line.rstrip(" |").rpartition("| ")[2] for line in rows}
    assert roles["24"] == "recommended" and set(roles.values()) == {"recommended", "same settings"}


def test_what_begins_like_a_list_a_heading_or_a_rule_is_text() -> None:
    record, probes = RECORD, PROBES
    notes = ("1. one", "12) twelve", "- dash", "+ plus", "---", "--option", "# 7", "===")
    text = render_markdown(build_view(replace(record, workload=replace(record.workload, notes=notes)), probes))
    lines = [line for line in text.splitlines() if line.startswith("- ")]
    escaped = {
        r"- 1\. one",
        r"- 12\) twelve",
        r"- \- dash",
        r"- \+ plus",
        r"- \---",
        "- --option",
        r"- \# 7",
        r"- \===",
    }
    assert escaped <= set(lines)


def test_parentheses_and_plus_signs_stay_readable() -> None:
    assert "| peak memory | 34.6 GiB of 40 GiB (86 %) |" in render_markdown(build_view(RECORD, PROBES))


def test_what_was_not_reached_is_told_and_of_which_budget() -> None:
    failed = failing(1)
    seen = replace(failed.measurement, composition=replace(failed.measurement.composition, buffers_bytes=None))
    text = render_markdown(without_answer((replace(failed, measurement=seen),)))
    assert "Where the memory went at batch 1, of a budget of 40 GiB:" in text
    assert "| buffers | - | not reached |" in text


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
