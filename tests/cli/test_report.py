"""``autotune report`` over a real ledger."""

import json
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.model import SearchState
from autotune.report.document import document, to_text
from autotune.storage.owners import at_work, done, new_owner
from autotune.storage.store import Store
from tests.cli.conftest import Invoke, Keep
from tests.cli.results import PROBES, RECORD, RESULT, later

GOLDEN = sorted((Path(__file__).parents[1] / "contract" / "golden").glob("*.sql"))


def test_the_newest_search_becomes_a_page_in_the_working_folder(invoke: Invoke, keep: Keep, tmp_path: Path) -> None:
    keep(later("old1", 0), *PROBES)
    keep(later("new2", 1), *PROBES)
    ended = invoke("report", "--storage", "ledger")
    assert (ended.code, ended.out, ended.err) == (0, "wrote report.html\n", "")
    page = (tmp_path / "report.html").read_text()
    assert page.startswith("<!doctype html>") and "search new2" in page


def test_the_beginning_of_an_id_or_the_recommendation_names_a_search(
    invoke: Invoke, keep: Keep, tmp_path: Path
) -> None:
    keep(RECORD, *PROBES)
    keep(later("new2", 1), *PROBES)
    (tmp_path / "autotune.json").write_text(to_text(document(RESULT)))
    for named in (RECORD.id, RECORD.id[:3], "autotune.json"):
        ended = invoke("report", named, "--format", "json", "--storage", "ledger")
        assert (ended.code, json.loads(ended.out)["search_id"]) == (0, RECORD.id)


@pytest.mark.parametrize(
    ("options", "begins"),
    [
        (("--output", "page.htm"), "<!doctype html>"),
        (("--output", "notes.md"), "## autotune: `model.py`"),
        (("--output", "data.JSON"), '{\n  "report_version": 1,'),
        (("--output", "summary.txt", "--format", "md"), "## autotune: `model.py`"),
    ],
)
def test_the_format_is_told_by_the_files_name_or_asked_for(
    options: tuple[str, ...], begins: str, invoke: Invoke, keep: Keep, tmp_path: Path
) -> None:
    keep(RECORD, *PROBES)
    ended = invoke("report", "--storage", "ledger", *options)
    assert (ended.code, ended.out) == (0, f"wrote {options[1]}\n")
    assert (tmp_path / options[1]).read_text().startswith(begins)


def test_markdown_and_json_go_to_stdout_and_say_the_same(invoke: Invoke, keep: Keep, tmp_path: Path) -> None:
    keep(RECORD, *PROBES)
    told = invoke("report", "--format", "md", "--storage", "ledger").out
    facts = json.loads(invoke("report", "--format", "json", "--storage", "ledger").out)
    assert f"**Train with batch size {facts['answer']['batch_size']}**" in told
    assert all(claim["text"].split(",")[0] in told.replace("\\", "") for claim in facts["claims"])
    assert facts["facts"]["Machine"]["PyTorch"] == "2.11.0"
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix in (".html", ".md", ".json")) == []


def test_a_search_without_an_answer_has_a_report_too(invoke: Invoke, keep: Keep) -> None:
    keep(later("none", 0, answer=None, state=SearchState.NO_ANSWER), PROBES[2])
    keep(later("stopped", 1, answer=None, state=SearchState.INTERRUPTED), *PROBES[:2])
    owner = new_owner()
    at_work(owner)
    keep(later("running", 2, answer=None, state=SearchState.RUNNING, owner=owner))
    keep(later("killed", 3, answer=None, state=SearchState.RUNNING, owner=new_owner()))
    for name, title in (
        ("none", "Nothing fits"),
        ("stopped", "Interrupted"),
        ("running", "Not finished"),
        ("killed", "Interrupted"),
    ):
        ended = invoke("report", name, "--format", "md", "--storage", "ledger")
        assert ended.code == 0 and f"**{title}**" in ended.out
        assert invoke("report", name, "--storage", "ledger").code == 0
    done(owner)


def test_what_confirms_an_answer_is_shown_with_the_search_it_confirms(invoke: Invoke, keep: Keep) -> None:
    keep(later("first", 0), *PROBES)
    keep(later("again", 1, based_on="first"), PROBES[5])
    facts = json.loads(invoke("report", "--format", "json", "--storage", "ledger").out)
    assert (facts["search_id"], len(facts["probes"])) == ("again", 8)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_ledgers_of_every_older_version_have_reports(path: Path, invoke: Invoke, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "ledger") as database:
        database.executescript(path.read_text(encoding="utf-8"))
    database.close()
    with Store.open(str(tmp_path / "ledger")) as store:
        records = store.searches()
    assert records
    for record in records:
        for form in ("html", "md", "json"):
            ended = invoke("report", record.id, "--format", form, "--storage", "ledger")
            assert (ended.code, ended.err) == (0, "")


def test_mistakes_are_usage_errors_with_a_next_step(invoke: Invoke, keep: Keep, tmp_path: Path) -> None:
    keep(later("some", 0), *PROBES)
    (tmp_path / "other.json").write_text(to_text(document(replace(RESULT, search_id="elsewhere"))))
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "model.py").write_text("keep me")
    for argv, message, hint in (
        (["zz"], "has no search 'zz'", "autotune runs ls"),
        (["other.json"], "other.json is of search elsewhere, and ledger", "--storage FILE"),
        (["broken.json"], "broken.json: this is not a recommendation", "autotune search MODEL --output"),
        (["missing.json"], "there is no missing.json", "autotune search MODEL"),
        (["--output", "model.py"], "model.py does not say whether", "--output model.py.html"),
        (["--output", "gone/report.html"], "cannot write gone/report.html", "name a file in a folder that exists"),
        (["--format", "pdf"], "'--format'", "autotune report --help"),
    ):
        ended = invoke("report", *argv, "--storage", "ledger")
        assert (ended.code, ended.out) == (2, "")
        lines = ended.err.splitlines()
        assert message in lines[0]
        assert lines[-1].startswith("hint: ") and hint in lines[-1]
    assert (tmp_path / "model.py").read_text() == "keep me"
    assert not (tmp_path / "report.html").exists()


def test_no_ledger_and_an_empty_one_say_how_to_begin(invoke: Invoke, tmp_path: Path) -> None:
    missing = invoke("report", "--storage", "elsewhere")
    assert missing.code == 2 and "no ledger at" in missing.err
    Store.open(str(tmp_path / "empty")).close()
    empty = invoke("report", "--storage", "empty")
    assert (empty.code, empty.err) == (
        2,
        "error: the ledger holds no search\nhint: begin with: autotune search model.py\n",
    )
    assert list(tmp_path.glob("*.html")) == []
