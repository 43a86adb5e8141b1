"""What only a file can go through: foreign content, damage, locks, permissions."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.exc import IntegrityError

from autotune.errors import DamagedRow, StoreError, UsageError
from autotune.session import Session
from autotune.storage import engine as engine_module
from autotune.storage.address import parse_address
from autotune.storage.engine import for_writing, make_engine
from autotune.storage.store import Store
from tests.contract import searching
from tests.contract.samples import FITTING_PROBE, PROBE, SEARCH, TRACED_PROBE, facts, search
from tests.fakes import MACHINE


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger with one search and two probes."""
    path = tmp_path / "ledger.db"
    with Store.open(str(path)) as store:
        store.begin(SEARCH)
        store.add_probe(SEARCH.id, PROBE)
        store.add_probe(SEARCH.id, FITTING_PROBE)
    return path


def sql(path: Path, statement: str, *values: Any) -> list[Any]:
    """Run one statement as someone else would, without autotune."""
    with closing(sqlite3.connect(path)) as connection, connection:
        return connection.execute(statement, values).fetchall()


@pytest.fixture
def traced(path: Path) -> Path:
    """The same ledger, with a third probe that has a trace."""
    with Store.open(str(path)) as store:
        store.add_probe(SEARCH.id, TRACED_PROBE)
    return path


@pytest.fixture
def connection(path: Path) -> Iterator[Connection]:
    """A connection as the store makes them."""
    engine = make_engine(parse_address(str(path)))
    with for_writing(engine).connect() as connection:
        yield connection
    engine.dispose()


def test_the_switches_of_sqlite_are_set_on_every_connection(connection: Connection) -> None:
    names = ("journal_mode", "busy_timeout", "foreign_keys", "synchronous")
    values = [connection.execute(text(f"PRAGMA {name}")).scalar_one() for name in names]
    assert values == ["wal", 30_000, 1, 2]


def test_a_probe_without_a_search_is_refused_by_the_database_itself(connection: Connection) -> None:
    with pytest.raises(IntegrityError, match="FOREIGN KEY"):
        connection.execute(text("UPDATE autotune_probes SET search_id = 'nosuch'"))


def test_one_number_in_a_search_is_given_once(connection: Connection) -> None:
    with pytest.raises(IntegrityError, match="UNIQUE"):
        connection.execute(text("UPDATE autotune_probes SET number = 1"))


def test_what_people_ask_for_is_a_column(path: Path) -> None:
    query = """SELECT state, created, device_name, precision, allocator, accumulate, max_batch, refuted_at,
        recommended_batch, limited_by, workload_fingerprint, machine_fingerprint, budget_bytes FROM autotune_searches"""
    made = ("answered", "2026-01-31 12:00:00.123456+00:00", "NVIDIA H200", "fp16", "expandable_segments:True", 3)
    found = (27, 28, 24, "device_memory", "feed", SEARCH.machine.fingerprint, 40 << 30)
    assert sql(path, query) == [made + found]

    query = """SELECT number, batch_size, outcome, cause, phase, message, accumulate, steps_executed,
        median_step_seconds, samples_per_second, peak_device_bytes, started_at FROM autotune_probes ORDER BY number"""
    failed = (1, 28, "out_of_memory", "device_memory", "backward", "CUDA out of memory.\nTried to allocate 20 MiB")
    fitted = (2, 27, "fits", None, None, None)
    peak = (79 << 29, "2026-01-31 12:00:00.123456+00:00")
    assert sql(path, query) == [(*failed, 4, 2, 0.5, 168.0, *peak), (*fitted, 4, 2, 0.5, 162.0, *peak)]


def test_a_trace_without_a_probe_is_refused_by_the_database_itself(traced: Path, connection: Connection) -> None:
    with pytest.raises(IntegrityError, match="FOREIGN KEY"):
        connection.execute(text("UPDATE autotune_traces SET probe_id = 99"))


def test_a_second_trace_of_a_probe_is_refused_by_the_database_itself(traced: Path, connection: Connection) -> None:
    with pytest.raises(IntegrityError, match="UNIQUE"):
        connection.execute(text("INSERT INTO autotune_traces SELECT * FROM autotune_traces"))


def test_how_long_a_trace_is_is_a_column(traced: Path) -> None:
    assert sql(traced, "SELECT probe_id, format, num_events FROM autotune_traces") == [(3, 1, 8)]


def test_documents_are_json_that_sqlite_can_look_into(path: Path) -> None:
    query = (
        "SELECT json_extract(measurement, '$.losses[0]'), json_extract(measurement, '$.losses[2]') FROM autotune_probes"
    )
    assert sql(path, query)[0] == (10.8, "inf")


def test_the_settings_of_a_probe_can_be_asked_for(path: Path) -> None:
    found = sql(
        path,
        "SELECT DISTINCT json_extract(settings, '$.precision'), json_extract(settings, '$.allocator') FROM autotune_probes",
    )
    assert found == [("bf16", "max_split_size_mb:128")]


def test_a_closed_ledger_is_one_whole_file(path: Path) -> None:
    assert not path.with_name("ledger.db-wal").exists()
    copy = path.with_name("copy.db")
    copy.write_bytes(path.read_bytes())
    with Store.open(str(copy)) as store:
        assert store.probes(SEARCH.id) == (PROBE, FITTING_PROBE)


@pytest.mark.parametrize(
    ("column", "value", "why"),
    [
        ("measurement", '{"steps_asked": 5', "column measurement is not JSON"),
        ("measurement", b"\xff\xfe", "column measurement is not JSON"),
        ("measurement", 7, "measurement: "),
        ("measurement", '{"losses": "many"}', "measurement.losses: "),
        ("measurement", "[" * 100_000, "column measurement is not JSON"),
        ("failure", None, "outcome 'out_of_memory' contradicts"),
        ("failure", '{"cause": "bad luck", "message": ""}', "failure.cause: "),
        ("settings", '{"accumulate": 4', "column settings is not JSON"),
        ("settings", "[]", "settings: "),
        ("settings", '{"precision": "fp8"}', "settings.precision: "),
        ("settings", '{"accumulate": 0}', "accumulate is 0"),
        ("settings", '{"allocator": "big"}', "allocator setting 'big'"),
        ("outcome", "perhaps", "outcome: "),
        ("outcome", "fits", "outcome 'fits' contradicts"),
        ("started_at", "yesterday", "started_at: "),
        ("batch_size", "twelve", "batch_size: "),
        ("seconds", "long", "seconds: "),
        ("budget_bytes", 1 << 61, "budget_bytes: a number that cannot be"),
        ("started_at", "9999-12-31 23:59:59-05:00", "started_at: "),
    ],
)
def test_a_damaged_probe_is_named_with_its_table_id_and_field(path: Path, column: str, value: Any, why: str) -> None:
    sql(path, f"UPDATE autotune_probes SET {column} = ? WHERE id = 1", value)
    with Store.open(str(path)) as store:
        with pytest.raises(StoreError) as caught:
            store.probes(SEARCH.id)
        assert caught.value.message.startswith(f"autotune_probes, id 1 (search '{SEARCH.id}') is damaged: {why}")
        assert "autotune runs ls" in caught.value.hint
        assert store.searches() == (SEARCH,)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"", "cut off after 0 bytes"),
        (b"\0", "cut off after 1 bytes"),
        (b"{}", "not zlib data"),
        ("{}", "column data is str, not bytes"),
        (7, "column data is int, not bytes"),
        (1 << 60, "column data is int, not bytes"),
        (0.5, "column data is float, not bytes"),
    ],
)
def test_a_trace_that_is_none_is_told_and_leaves_its_probe_readable(
    traced: Path, value: Any, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    sql(traced, "UPDATE autotune_traces SET data = ?", value)
    with Store.open(str(traced)) as store:
        assert facts(*store.probes(SEARCH.id)) == facts(PROBE, FITTING_PROBE, replace(TRACED_PROBE, trace=None))
    (told,) = caplog.messages
    assert told.startswith(f"autotune_traces, probe_id 3 (search '{SEARCH.id}') is damaged: {why}")


@pytest.mark.parametrize(
    ("column", "value", "why"),
    [
        ("plan", "{'source': None}", "column plan is not JSON"),
        ("plan", "{}", "plan.source: "),
        ("plan", '{"source": {"ref": "train.py"}, "settings": {"accumulate": 0}}', "accumulate is 0"),
        ("machine", "null", "machine: "),
        ("state", "asleep", "state: "),
        ("created", "noon", "created: "),
        ("created", "0001-01-01 00:00:00+05:00", "created: "),
    ],
)
def test_a_damaged_search_is_named_with_its_table_id_and_field(path: Path, column: str, value: Any, why: str) -> None:
    sql(path, f"UPDATE autotune_searches SET {column} = ?", value)
    with Store.open(str(path)) as store:
        with pytest.raises(DamagedRow) as caught:
            store.get(SEARCH.id)
        assert caught.value.message.startswith(f"autotune_searches, id '{SEARCH.id}' is damaged: {why}")
        assert f"autotune runs rm {SEARCH.id}" in caught.value.hint
        assert store.searches() == ()


@pytest.mark.parametrize(
    ("column", "value"),
    [("created", "0001-01-01 00:00:00+05:00"), ("finished", "9999-12-31 23:59:59-05:00"), ("id", b"\xff")],
)
def test_a_value_that_is_none_of_its_column_keeps_nobody_from_the_list(path: Path, column: str, value: Any) -> None:
    with Store.open(str(path)) as store:
        store.begin(search("sound"))
        sql(path, f"UPDATE autotune_searches SET {column} = ? WHERE id = ?", value, SEARCH.id)
        read, (damaged,) = store.summaries()
        assert [one.id for one in read] == ["sound"]
        assert f"is damaged: {column}: " in damaged.why


def test_the_newest_search_that_can_be_read_is_the_newest(path: Path) -> None:
    with Store.open(str(path)) as store:
        store.begin(search("newest", created=SEARCH.created + timedelta(hours=1)))
        sql(path, "UPDATE autotune_searches SET plan = '{' WHERE id = 'newest'")
        assert store.searches(1) == (SEARCH,)


def test_a_check_of_a_file_does_without_the_evidence_of_its_search_where_that_is_damaged(tmp_path: Path) -> None:
    path, notes = tmp_path / "ledger.db", searching.Notes()
    with Store.open(str(path)) as store:
        found = searching.search(store, searching.planted())
        sql(path, "UPDATE autotune_probes SET measurement = '{'")
        session = Session(
            searching.plan(),
            store,
            searching.planted(),
            notes,
            searching.workload(),
            MACHINE,
            searching.BUDGET,
            time.monotonic(),
        )
        assert session.check(found.answer, found.search_id)[1]
        assert session.check(found.answer, "not here")[1]
    assert [said.endswith("; it is not used") for said in notes.said] == [True, True]


@pytest.mark.parametrize("replaced", [False, True])
def test_a_ledger_that_is_removed_while_a_search_uses_it_is_told_and_no_empty_one_made(
    path: Path, replaced: bool
) -> None:
    with Store.open(str(path)) as store:
        store.add_probe(SEARCH.id, PROBE)
        moved = path.rename(path.with_name("moved.db"))
        if replaced:
            Store.open(str(path)).close()
        with pytest.raises(StoreError, match=f"was {'replaced' if replaced else 'removed'} while it was in use"):
            store.add_probe(SEARCH.id, PROBE)
        assert path.exists() == replaced
        if not replaced:
            moved.rename(path)
            store.add_probe(SEARCH.id, PROBE)
            assert len(store.probes(SEARCH.id)) == 4


def test_an_instant_written_by_sqlite_itself_is_read_as_utc(path: Path) -> None:
    sql(path, "UPDATE autotune_searches SET created = datetime('2026-02-01 10:00:00')")
    with Store.open(str(path)) as store:
        assert store.get(SEARCH.id).created.isoformat() == "2026-02-01T10:00:00+00:00"


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    content = "Not a database, and dear to its owner.\n" * 100
    path.write_text(content)
    with pytest.raises(StoreError, match=r"notes\.txt is not a SQLite database") as caught:
        Store.open(str(path))
    assert "--storage" in caught.value.hint
    assert path.read_text() == content


def test_a_truncated_database_is_refused(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(StoreError, match=r"ledger\.db is damaged") as caught, Store.open(str(path)) as store:
        store.searches()
    assert "--storage" in caught.value.hint


def test_an_empty_file_becomes_a_ledger(tmp_path: Path) -> None:
    path = tmp_path / "mktemp.db"
    path.touch()
    with Store.open(str(path)) as store:
        store.begin(SEARCH)
        assert store.get(SEARCH.id) == SEARCH


def test_a_folder_that_cannot_be_made_is_one_error_with_a_command(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot be opened") as caught:
        Store.open(str(tmp_path / "file" / "below" / "ledger.db"))
    assert f"ls -ld {tmp_path}/file" in caught.value.hint


@pytest.mark.parametrize("create", [True, False])
def test_a_folder_in_place_of_the_file_is_a_usage_error_that_names_a_file_in_it(tmp_path: Path, create: bool) -> None:
    folder = tmp_path / "ledger.db"
    folder.mkdir()
    with pytest.raises(UsageError) as caught:
        Store.open(str(folder), create=create)
    assert caught.value.message == f"{folder} is a directory"
    assert caught.value.hint == f"name a file: --storage {folder}/ledger.sqlite3"
    assert list(folder.iterdir()) == []


def test_a_reader_makes_neither_ledger_nor_folder(tmp_path: Path) -> None:
    path = tmp_path / "typo" / "ledger.db"
    with pytest.raises(UsageError) as caught:
        Store.open(str(path), create=False)
    assert caught.value.message == f"no ledger at {path}"
    assert list(tmp_path.iterdir()) == []


def test_a_reader_leaves_a_file_that_is_no_ledger_as_it_is(tmp_path: Path) -> None:
    empty, foreign = tmp_path / "empty.db", tmp_path / "foreign.db"
    empty.touch()
    with closing(sqlite3.connect(foreign)) as other:
        other.execute("CREATE TABLE mine (x)")
    before = foreign.read_bytes()
    for path in (empty, foreign):
        with pytest.raises(UsageError, match="no ledger at"):
            Store.open(str(path), create=False)
    assert (empty.read_bytes(), foreign.read_bytes()) == (b"", before)
    assert sorted(tmp_path.iterdir()) == [empty, foreign]


def test_c35_a_reader_that_stays_does_not_stop_a_writer(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as reader, Store.open(str(path)) as store:
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM autotune_probes").fetchone() == (2,)
        store.add_probe(SEARCH.id, PROBE)
        assert len(store.probes(SEARCH.id)) == 3


def test_c35_a_lock_that_outlasts_the_wait_is_one_error_that_names_the_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "BUSY_TIMEOUT_MS", 50)
    with closing(sqlite3.connect(path, isolation_level=None)) as writer, Store.open(str(path)) as store:
        writer.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match=r"ledger\.db is locked by another process, still after 30 s") as caught:
            store.add_probe(SEARCH.id, PROBE)
        assert f"fuser -v {path}" in caught.value.hint
        writer.execute("ROLLBACK")
        store.add_probe(SEARCH.id, PROBE)


def test_a_failed_write_leaves_nothing_behind(path: Path) -> None:
    sql(path, "CREATE TRIGGER stop BEFORE INSERT ON autotune_probes BEGIN SELECT RAISE(ABORT, 'stopped'); END")
    with Store.open(str(path)) as store:
        with pytest.raises(StoreError, match="stopped"):
            store.add_probe(SEARCH.id, PROBE)
        store.begin(search("next"))
        assert len(store.probes(SEARCH.id)) == 2


def test_a_probe_is_not_written_without_its_trace(path: Path) -> None:
    sql(path, "CREATE TRIGGER stop BEFORE INSERT ON autotune_traces BEGIN SELECT RAISE(ABORT, 'stopped'); END")
    with Store.open(str(path)) as store:
        with pytest.raises(StoreError, match="stopped"):
            store.add_probe(SEARCH.id, TRACED_PROBE)
        assert len(store.probes(SEARCH.id)) == 2
