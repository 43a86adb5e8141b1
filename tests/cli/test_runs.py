"""``autotune runs`` over a real ledger."""

import json
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import typer

from autotune import api
from autotune.model import ProbeResult, Reason, SearchRecord, SearchState
from autotune.storage import owners
from autotune.storage.store import Store
from tests.cli.conftest import FakeApi, Invoke
from tests.cli.results import MACHINE, NOON, PROBES, RECORD, fitting
from tests.contract.samples import TRACED_PROBE, facts
from tests.contract.samples import search as sample

Keep = Callable[..., None]
LEDGER = ("--storage", "ledger")
NOW = datetime.now(UTC)


SHOW = api.show


@pytest.fixture(autouse=True)
def real(fake: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shows what is in the ledger, unlike the fake."""
    monkeypatch.setattr(api, "show", SHOW)


@pytest.fixture
def keep(tmp_path: Path) -> Keep:
    """Put a search into the ledger ``ledger`` of the working folder."""

    def kept(search_id: str, *probes: ProbeResult, days_ago: float = 0, **changes: object) -> None:
        then = NOW - timedelta(days=days_ago)
        record = replace(RECORD, id=search_id, created=then, finished=then, **changes)  # type: ignore[arg-type]
        with Store.open(str(tmp_path / "ledger")) as store:
            store.begin(record)
            for probe in probes:
                store.add_probe(search_id, probe)

    return kept


def running(search_id: str = "live") -> dict[str, object]:
    """A search that runs, as far as anybody can tell from here."""
    leased = NOW + timedelta(hours=1)
    return {"state": SearchState.RUNNING, "answer": None, "owner": "elsewhere:4711:1.00", "lease_until": leased}


def ids(invoke: Invoke) -> list[str]:
    """What is in the ledger, newest first."""
    return [one["id"] for one in json.loads(invoke("runs", "ls", "--json", *LEDGER).out)]


def damage(column: str, search_id: str, table: str = "autotune_searches") -> None:
    """Write nonsense into a column."""
    key = "id" if table == "autotune_searches" else "search_id"
    with closing(sqlite3.connect("ledger")) as connection, connection:
        connection.execute(f"UPDATE {table} SET {column} = 'nonsense' WHERE {key} = ?", (search_id,))


class TestList:
    def test_searches_are_listed_newest_first_with_their_state_and_probes(self, invoke: Invoke, keep: Keep) -> None:
        keep("old", *PROBES, days_ago=2)
        keep("live", *PROBES[:2], days_ago=1, **running())
        keep("new")
        ended = invoke("runs", "ls", *LEDGER)
        assert (ended.code, ended.err) == (0, "")
        lines = [line.split() for line in ended.out.splitlines()[1:]]
        assert [(line[0], line[4], line[5], line[6]) for line in lines] == [
            ("new", "answered", "27", "0"),
            ("live", "running", "-", "2"),
            ("old", "answered", "27", "7"),
        ]
        assert len(invoke("runs", "ls", "--limit", "2", *LEDGER).out.splitlines()) == 3

    def test_a_search_whose_process_is_gone_is_listed_as_interrupted(self, invoke: Invoke, keep: Keep) -> None:
        keep("gone", **{**running(), "lease_until": NOW - timedelta(seconds=1)})
        (one,) = json.loads(invoke("runs", "ls", "--json", *LEDGER).out)
        assert one["state"] == "interrupted"
        assert one["message"].startswith("its process 4711 on elsewhere has not been heard of since")
        shown = invoke("runs", "show", "gone", *LEDGER).out
        assert "state       interrupted: its process 4711 on elsewhere has not been heard of since" in shown

    def test_the_list_can_be_read_by_programs(self, invoke: Invoke, keep: Keep) -> None:
        keep("a", *PROBES)
        (one,) = json.loads(invoke("runs", "ls", "--json", *LEDGER).out)
        assert (one["id"], one["state"], one["max_batch"], one["recommended_batch"]) == ("a", "answered", 27, 24)
        assert (one["workload_ref"], one["probes"], one["created"]) == ("model.py", 7, NOW.isoformat())

    def test_on_a_terminal_a_long_command_is_shortened_to_the_width_and_elsewhere_it_is_whole(
        self, invoke: Invoke, keep: Keep, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        command = "python train.py " + "--flag value " * 30 + "--batch-size {batch}"
        keep("long", workload=replace(RECORD.workload, ref=command))
        assert command in invoke("runs", "ls", *LEDGER).out
        monkeypatch.setenv("TTY_COMPATIBLE", "1")
        monkeypatch.setenv("COLUMNS", "120")
        shown = invoke("runs", "ls", *LEDGER).out.splitlines()
        assert [len(line) for line in shown] == [120, 120]
        assert "  python train" in shown[1] and "ize {batch}  NVIDIA H200  40 GiB" in shown[1]
        assert json.loads(invoke("runs", "ls", "--json", *LEDGER).out)[0]["workload_ref"] == command
        assert command in invoke("runs", "show", "long", *LEDGER).out

    def test_a_search_of_a_length_bucket_says_of_which(self, invoke: Invoke, keep: Keep) -> None:
        keep("short", plan=replace(RECORD.plan, length_bucket=128))
        assert json.loads(invoke("runs", "ls", "--json", *LEDGER).out)[0]["length_bucket"] == 128
        heading, line = invoke("runs", "ls", *LEDGER).out.splitlines()
        assert line[heading.index("length bucket") :].split()[0] == "128"
        assert "length bucket  128\n" in invoke("runs", "show", "short", *LEDGER).out

    @pytest.mark.parametrize("column", ["state", "created", "budget_bytes", "max_batch"])
    def test_a_damaged_search_is_named_and_the_others_are_listed(self, invoke: Invoke, keep: Keep, column: str) -> None:
        for search_id in ("first", "bad", "last"):
            keep(search_id)
        damage(column, "bad")
        ended = invoke("runs", "ls", *LEDGER)
        assert ended.code == 0
        assert "first" in ended.out and "last" in ended.out and "bad" not in ended.out
        assert ended.err.startswith(f"- autotune_searches, id 'bad' is damaged: {column}: ")
        assert ended.err.endswith("; drop it with: autotune runs rm bad\n")
        assert invoke("runs", "rm", "bad", "--yes", *LEDGER).code == 0
        assert invoke("runs", "ls", *LEDGER).err == ""

    def test_a_damaged_document_is_an_error_of_the_search_that_has_it(self, invoke: Invoke, keep: Keep) -> None:
        for search_id in ("good", "bad"):
            keep(search_id, *PROBES)
        damage("measurement", "bad", "autotune_probes")
        assert invoke("runs", "show", "good", *LEDGER).code == 0
        ended = invoke("runs", "show", "bad", *LEDGER)
        assert (ended.code, ended.out) == (5, "")
        assert "error: autotune_probes, id 8 (search 'bad') is damaged: column measurement is not JSON" in ended.err
        assert "`autotune runs rm bad`" in ended.err

    def test_an_empty_ledger_is_told_on_stderr(self, invoke: Invoke, tmp_path: Path) -> None:
        Store.open(str(tmp_path / "ledger")).close()
        ended = invoke("runs", "ls", *LEDGER)
        assert (ended.code, ended.out) == (0, "")
        assert "no searches yet" in ended.err
        assert ids(invoke) == []

    def test_a_ledger_that_was_named_and_is_missing_is_an_error_and_the_default_one_is_just_empty(
        self, invoke: Invoke, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
        named = invoke("runs", "ls", "--storage", "typo")
        assert (named.code, named.out) == (2, "")
        assert f"error: no ledger at {tmp_path / 'typo'}\n" in named.err
        unnamed = invoke("runs", "ls")
        assert unnamed.code == 0
        assert "no searches yet" in unnamed.err
        assert list(tmp_path.iterdir()) == []


class TestCompare:
    def test_what_differs_is_shown_part_by_part(self, invoke: Invoke, keep: Keep) -> None:
        keep("old1", *PROBES)
        keep("new2", *PROBES[:3], machine=replace(MACHINE, torch_version="2.13.0"), answer=None)
        ended = invoke("runs", "compare", "ol", "new2", *LEDGER)
        assert ended.code == 0
        lines = [line.split() for line in ended.out.splitlines()]
        assert lines[0] == ["ol", "new2"]
        assert lines[1] == ["machine", "torch", "version", "2.11.0", "2.13.0"]
        assert ["probes", "7", "3"] in lines
        found = json.loads(invoke("runs", "compare", "old1", "new2", "--json", *LEDGER).out)
        assert found[0] == {"part": "machine", "field": "torch version", "before": "2.11.0", "after": "2.13.0"}

    def test_a_confirmation_is_compared_with_the_evidence_of_what_it_confirmed(
        self, invoke: Invoke, keep: Keep
    ) -> None:
        keep("first", *PROBES)
        keep("again", replace(PROBES[5], reason=Reason.CONFIRM), based_on="first")
        assert [
            one["field"] for one in json.loads(invoke("runs", "compare", "first", "again", "--json", *LEDGER).out)
        ] == ["probes"]


class TestRemove:
    def test_named_searches_go_with_their_probes(self, invoke: Invoke, keep: Keep) -> None:
        for search_id in ("aa", "ab", "ba"):
            keep(search_id, *PROBES)
        ended = invoke("runs", "rm", "aa", "b", "--yes", *LEDGER)
        assert (ended.code, ended.out, ended.err) == (0, "removed 2 searches\n", "")
        assert ids(invoke) == ["ab"]
        with closing(sqlite3.connect("ledger")) as connection:
            assert connection.execute("SELECT DISTINCT search_id FROM autotune_probes").fetchall() == [("ab",)]

    @pytest.mark.parametrize(
        ("options", "left"),
        [
            (("--older-than", "30d"), ["d0", "d1", "d29"]),
            (("--older-than", "36h"), ["d0", "d1"]),
            (("--keep", "1"), ["d0"]),
            (("--keep", "0"), []),
            (("--keep", "4", "--older-than", "1d"), ["d0", "d1", "d29", "d31"]),
            (("--keep", "1", "--older-than", "5w"), ["d0", "d1", "d29", "d31"]),
            (("--older-than", "1w", "--keep", "2"), ["d0", "d1"]),
        ],
    )
    def test_searches_are_chosen_by_age_and_number(
        self, invoke: Invoke, keep: Keep, options: tuple[str, ...], left: list[str]
    ) -> None:
        for days in (90, 31, 29, 1, 0):
            keep(f"d{days}", days_ago=days + 0.01)
        assert invoke("runs", "rm", "--yes", *options, *LEDGER).code == 0
        assert ids(invoke) == left

    def test_a_running_search_is_never_removed(self, invoke: Invoke, keep: Keep) -> None:
        keep("live", days_ago=90, **running())
        keep("old", days_ago=90)
        ended = invoke("runs", "rm", "--older-than", "30d", "--yes", *LEDGER)
        assert ended.err == "- search live is kept: it is running\n"
        assert ids(invoke) == ["live"]
        named = invoke("runs", "rm", "live", "--yes", *LEDGER)
        assert named.code == 2
        assert "error: search live is running (process 4711 on elsewhere)\nhint: stop it first" in named.err

    def test_a_search_of_this_machine_that_runs_is_not_removed_either(self, invoke: Invoke, keep: Keep) -> None:
        owner = owners.new_owner()
        owners.at_work(owner)
        keep("mine", **{**running(), "owner": owner})
        assert invoke("runs", "rm", "--keep", "0", "--yes", *LEDGER).err == (
            "- search mine is kept: it is running\nnothing to remove\n"
        )
        owners.done(owner)
        assert invoke("runs", "rm", "--keep", "0", "--yes", *LEDGER).out == "removed 1 search\n"

    def test_a_search_that_others_confirmed_is_kept_as_long_as_they_are(self, invoke: Invoke, keep: Keep) -> None:
        keep("base", days_ago=90)
        keep("then", days_ago=60, based_on="base")
        keep("now", based_on="base")
        ended = invoke("runs", "rm", "--older-than", "30d", "--yes", *LEDGER)
        assert ended.err == "- search base is kept: now confirmed it\n"
        assert ids(invoke) == ["now", "base"]
        named = invoke("runs", "rm", "base", "--yes", *LEDGER)
        assert named.code == 2
        assert "hint: remove them together: autotune runs rm base now\n" in named.err
        assert invoke("runs", "rm", "base", "now", "--yes", *LEDGER).code == 0
        assert ids(invoke) == []

    @pytest.mark.parametrize("options", [(), ("aa", "--keep", "1")])
    def test_it_must_be_said_which_and_in_one_way(self, invoke: Invoke, keep: Keep, options: tuple[str, ...]) -> None:
        keep("aa")
        ended = invoke("runs", "rm", *options, *LEDGER)
        assert ended.code == 2
        assert "autotune runs rm --older-than 30d" in ended.err
        assert ids(invoke) == ["aa"]

    def test_a_time_that_is_none_is_a_usage_error(self, invoke: Invoke) -> None:
        ended = invoke("runs", "rm", "--older-than", "soon")
        assert ended.code == 2
        assert "error: --older-than: 'soon' is not a time; write for example 30d, 12h or 2w" in ended.err

    def test_where_nobody_can_be_asked_nothing_is_removed(
        self, invoke: Invoke, keep: Keep, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        keep("aa", *PROBES)
        monkeypatch.setattr(sys.stdin, "isatty", lambda: False, raising=False)
        ended = invoke("runs", "rm", "aa", *LEDGER)
        assert (ended.code, ended.out) == (2, "")
        assert "error: 1 search with 7 probes would be removed, and nobody can be asked\nhint: add --yes\n" in ended.err
        assert ids(invoke) == ["aa"]

    @pytest.mark.parametrize(("says", "left"), [(True, []), (False, ["aa"])])
    def test_on_a_terminal_it_asks_first(
        self, invoke: Invoke, keep: Keep, monkeypatch: pytest.MonkeyPatch, says: bool, left: list[str]
    ) -> None:
        keep("aa", *PROBES)
        asked: list[str] = []

        def confirm(text: str, *, err: bool) -> bool:
            asked.append(text)
            return says

        monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
        monkeypatch.setattr(typer, "confirm", confirm)
        ended = invoke("runs", "rm", "aa", *LEDGER)
        assert (ended.code, asked) == (0, ["Remove them for good?"])
        assert ended.err.startswith("1 search with 7 probes: aa\n")
        assert ids(invoke) == left


class TestExport:
    def test_what_was_exported_can_be_imported_elsewhere_and_is_the_same(self, invoke: Invoke, tmp_path: Path) -> None:
        odd = replace(fitting(3), measurement=replace(fitting(3).measurement, losses=(float("inf"), None)))
        with Store.open(str(tmp_path / "ledger")) as store:
            for number, search_id in enumerate(("one", "two")):
                done = {"state": SearchState.INTERRUPTED, "lease_until": None, "finished": NOON}
                store.begin(sample(search_id, created=NOON + timedelta(minutes=number), **done))
                for probe in (TRACED_PROBE, odd):
                    store.add_probe(search_id, probe)
        exported = invoke("runs", "export", *LEDGER)
        assert (exported.code, exported.err) == (0, "")
        lines = exported.out.splitlines()
        assert [json.loads(line)["search"]["id"] for line in lines] == ["one", "two"]
        assert exported.out.isascii()
        Path("lines").write_text(exported.out)
        assert invoke("runs", "import", "lines", "--storage", "other").out == "added 2 searches\n"
        with Store.open("ledger") as here, Store.open("other") as there:
            assert there.searches() == here.searches()
            assert facts(*there.probes("one")) == facts(*here.probes("one")) == facts(TRACED_PROBE, odd)
        again = invoke("runs", "import", "lines", "--storage", "other")
        assert again.out == "added 0 searches; 2 searches were there already\n".replace("2 searches", "2")

    def test_named_searches_are_exported_in_that_order(self, invoke: Invoke, keep: Keep) -> None:
        for search_id in ("aa", "ab", "ba"):
            keep(search_id, *PROBES[:1])
        lines = invoke("runs", "export", "b", "aa", *LEDGER).out.splitlines()
        assert [json.loads(line)["search"]["id"] for line in lines] == ["ba", "aa"]

    def test_a_damaged_search_does_not_keep_the_others_and_is_told_at_the_end(self, invoke: Invoke, keep: Keep) -> None:
        for search_id in ("aa", "bad", "worse", "zz"):
            keep(search_id, *PROBES[:1])
        damage("measurement", "bad", "autotune_probes")
        damage("state", "worse")
        ended = invoke("runs", "export", *LEDGER)
        assert ended.code == 5
        assert [json.loads(line)["search"]["id"] for line in ended.out.splitlines()] == ["aa", "zz"]
        assert "error: 2 of 4 searches cannot be read and were left out\n" in ended.err
        assert "id 'worse' is damaged" in ended.err and "(search 'bad') is damaged" in ended.err

    def test_a_running_search_is_imported_as_interrupted(self, invoke: Invoke, keep: Keep) -> None:
        keep("live", *PROBES[:2], **running())
        Path("lines").write_text(invoke("runs", "export", *LEDGER).out)
        invoke("runs", "import", "lines", "--storage", "other")
        with Store.open("other") as store:
            record: SearchRecord = store.get("live")
        assert (record.state, record.message) == (SearchState.INTERRUPTED, "it was running when it was exported")

    @pytest.mark.parametrize(
        ("line", "why"),
        [
            ("{", "it is not JSON"),
            ("[" * 100_000, "it is not JSON"),
            ("7", "it is no search with its probes"),
            ("{}", "it is no search with its probes"),
            ('{"format": 99, "probes": []}', "it has format 99"),
            ('{"format": 1, "search": null, "probes": []}', ""),
            ('{"format": 1, "search": {"id": 7}, "probes": []}', "id: "),
        ],
        ids=range(7),
    )
    def test_a_line_that_is_no_search_is_named_and_those_before_it_are_kept(
        self, invoke: Invoke, keep: Keep, line: str, why: str
    ) -> None:
        keep("aa", *PROBES)
        Path("lines").write_text(invoke("runs", "export", *LEDGER).out + "\n" + line + "\n")
        ended = invoke("runs", "import", "lines", "--storage", "other")
        assert (ended.code, ended.out) == (5, "")
        assert f"error: line 3 cannot be imported: {why}" in ended.err
        with Store.open("other") as store:
            assert [one.id for one in store.searches()] == ["aa"]

    @pytest.mark.parametrize(
        ("place", "value", "why"),
        [
            (("search", "id"), "", "id: '' names no search"),
            (("search", "created"), "2026-01-31T12:00:00", "created: 2026-01-31 12:00:00 is no instant"),
            (("search", "created"), "0001-01-01T00:00:00+05:00", "created: 0001-01-01 00:00:00+05:00 is no instant"),
            (("search", "budget", "limit_bytes"), 1 << 70, "budget.limit_bytes: a number that cannot be"),
            (("search", "plan", "settings", "accumulate"), 0, "accumulate is 0"),
            (("probes", 0, "settings", "accumulate"), 0, "accumulate is 0"),
            (("probes", 0, "seconds"), "nan", "seconds: nan is no duration"),
        ],
        ids=range(7),
    )
    def test_what_no_ledger_can_keep_is_the_fault_of_its_line(
        self, invoke: Invoke, keep: Keep, place: tuple[str | int, ...], value: object, why: str
    ) -> None:
        keep("aa", *PROBES)
        content: Any = json.loads(invoke("runs", "export", *LEDGER).out)
        within = content
        for step in place[:-1]:
            within = within[step]
        within[place[-1]] = value
        Path("lines").write_text(json.dumps(content))
        ended = invoke("runs", "import", "lines", "--storage", "other")
        assert (ended.code, ended.out) == (5, "")
        assert f"error: line 1 cannot be imported: {why}" in ended.err

    def test_a_file_that_is_missing_is_told(self, invoke: Invoke) -> None:
        ended = invoke("runs", "import", "nowhere", *LEDGER)
        assert ended.code == 5
        assert "error: cannot read nowhere: No such file or directory" in ended.err


SECRET_URL = "postgresql+psycopg://me:s3cr@t@127.0.0.1:1/runs?sslpassword=s3cr@t"


@pytest.mark.parametrize(
    "argv",
    [
        ("runs", "ls"),
        ("runs", "ls", "--json"),
        ("runs", "rm", "aa", "--yes"),
        ("runs", "export"),
        ("runs", "compare", "a", "b"),
        ("explain",),
    ],
)
def test_no_command_shows_the_password_of_a_ledger(invoke: Invoke, argv: tuple[str, ...]) -> None:
    pytest.importorskip("psycopg")
    ended = invoke(*argv, "--storage", SECRET_URL)
    assert ended.code == 5
    assert "me:***@" in ended.err
    assert "s3cr" not in ended.out + ended.err
