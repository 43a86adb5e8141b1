"""The tables through time: migrations give what the models say, old ledgers are used, newer ones refused."""

import re
import shutil
import sqlite3
import time
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, text

import autotune.storage
from autotune.errors import StoreError
from autotune.identity import search_key
from autotune.model import Evaluation, Mark, PassPeaks, Phase, Precision, SearchState, Settings
from autotune.session import Session
from autotune.storage import schema
from autotune.storage.address import parse_address
from autotune.storage.engine import for_writing, make_engine
from autotune.storage.store import Store
from autotune.storage.tables import Base
from tests.contract.samples import FITTING_PROBE, PROBE, SEARCH, TRACED_PROBE, facts, search
from tests.contract.searching import Notes
from tests.fakes import FakeProber

GOLDEN = Path(__file__).with_name("golden")
"""One SQL dump per schema version, written by the version itself. Never change one; add the next."""

MIGRATIONS = Path(autotune.storage.__path__[0]) / "migrations"


def ours(url: str) -> Engine:
    """An engine as the store makes them."""
    return make_engine(parse_address(url))


def differences(url: str) -> list[object]:
    """What Alembic would change in a ledger to make it match the models."""
    engine = ours(url)
    with engine.connect() as connection:
        # Where Alembic looks for tables of no schema; SQLAlchemy asked before the store's own setting was in force.
        connection.dialect.default_schema_name = parse_address(url).schema or "main"
        options = {"include_name": schema.is_ours, "version_table": schema.VERSION_TABLE, "compare_type": True}
        found = compare_metadata(MigrationContext.configure(connection, opts=options), Base.metadata)
    engine.dispose()
    return list(found)


def test_the_migrations_give_the_tables_of_the_models(store: Store, url: str) -> None:
    assert differences(url) == []


def test_a_lost_column_would_be_noticed(store: Store, url: str) -> None:
    engine = ours(url)
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE autotune_probes DROP COLUMN stdout_tail"))
    engine.dispose()
    assert len(differences(url)) == 1


def test_tables_of_others_in_the_same_file_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "shared.db"
    with closing(sqlite3.connect(path)) as other, other:
        other.execute("CREATE TABLE alembic_version (version_num VARCHAR(32))")
        other.execute("INSERT INTO alembic_version VALUES ('v3.2.0.a')")
    with Store.open(str(path)) as store:
        store.begin(SEARCH)
    assert differences(f"sqlite:///{path}") == []
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT * FROM alembic_version").fetchall() == [("v3.2.0.a",)]


def test_the_known_revisions_are_those_on_disk() -> None:
    script = ScriptDirectory(str(MIGRATIONS))
    assert tuple(reversed([step.revision for step in script.walk_revisions()])) == schema.REVISIONS
    assert script.get_heads() == [schema.HEAD]


def test_every_schema_version_has_a_golden_ledger() -> None:
    assert {path.name for path in GOLDEN.iterdir()} == {f"schema_{revision}.sql" for revision in schema.REVISIONS}


def golden(revision: str, folder: Path) -> Path:
    """A ledger as that version of the schema left it."""
    path = folder / "old.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript((GOLDEN / f"schema_{revision}.sql").read_text("utf-8"))
    return path


@pytest.mark.parametrize("revision", schema.REVISIONS)
def test_a_golden_ledger_is_read_and_goes_on(revision: str, tmp_path: Path) -> None:
    path = golden(revision, tmp_path)
    before_leases = revision < "0004"
    with Store.open(str(path)) as store:
        # Spelled out: the samples grow with the model, a golden ledger does not.
        newer, older = store.searches()
        assert (newer.id, newer.state, newer.owner) == ("5ea4c0ffee", "answered", "host:4711:1738324800.25")
        # Before there were leases nothing says that it ended; the one of 0004 ended long ago.
        assert (older.id, older.state, older.answer) == (
            "0ldsearch",
            "running" if before_leases else "interrupted",
            None,
        )
        assert older.created.isoformat() == "2025-01-31T12:00:00.123456+00:00"
        assert newer.answer is not None
        assert (newer.answer.max_batch, newer.answer.refuted_at, newer.answer.holes) == (27, 28, (9, 12))
        assert newer.plan.source.script_args == ("--width", "64")
        assert newer.workload.notes == ("data sampled", "größer — 大")
        assert newer.machine.capacity_bytes == 151397597184
        failed, fitted = store.probes("5ea4c0ffee")
        assert (failed.batch_size, failed.outcome, failed.seconds) == (28, "out_of_memory", 7.5)
        assert failed.failure is not None
        assert (failed.failure.cause, failed.failure.phase) == ("device_memory", "backward")
        assert failed.measurement.losses == (10.8, 0.30000000000000004, float("inf"), float("-inf"))
        assert (fitted.batch_size, fitted.fits, fitted.measurement.steps_executed) == (27, True, 2)
        assert failed.trace is None
        planned = Settings(precision=Precision.BF16, allocator="expandable_segments:True", accumulate=4)
        assert newer.plan.settings == planned
        if revision == "0001":
            assert fitted.settings == failed.settings == planned
            assert fitted.trace is None
        else:
            assert fitted.settings == failed.settings == replace(planned, allocator="max_split_size_mb:128")
            assert fitted.trace is not None
            assert fitted.trace.sizes == (512, 42949672960, 0, 2048, 4096)
            assert fitted.trace.streams == (0, 0, 1, 0, 2)
            assert fitted.trace.events == (1, 2, 3, -2, 4, -4, -3, 5)
            assert fitted.trace.marks[3] == Mark(position=7, phase=Phase.OPTIMIZER, step=2, batch_size=3)
            assert fitted.trace.passes[1] == PassPeaks(3, 1, allocated_bytes=4608, reserved_bytes=2097152)
        evaluated_apart = revision >= "0003"
        assert failed.evaluate_at == fitted.evaluate_at == (6 if evaluated_apart else None)
        evaluation = Evaluation(max_batch=6, refuted_at=7, limited_by="host_memory")
        assert newer.answer.evaluation == (evaluation if evaluated_apart else None)
        assert newer.plan.eval_batch == (6 if evaluated_apart else None)
        of_ranks = revision >= "0005"
        assert (newer.plan.ranks, newer.machine.peers) == ((2, ("GPU-5678",)) if of_ranks else (1, ()))
        assert failed.failure.rank == (1 if of_ranks else None)
        assert [one.outcome for one in failed.ranks] == ([None, "out_of_memory"] if of_ranks else [])
        store.add_probe(SEARCH.id, TRACED_PROBE)
        store.begin(search("new"))
        store.add_probe("new", FITTING_PROBE)
    with Store.open(str(path)) as store:
        assert facts(*store.probes(SEARCH.id)) == facts(failed, fitted, TRACED_PROBE)
        assert store.probes("new") == (FITTING_PROBE,)
    assert differences(f"sqlite:///{path}") == []
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def golden_on_server(revision: str, folder: Path, url: str) -> None:
    """The same rows in PostgreSQL, in the tables of that version."""
    address = parse_address(url)
    engine = ours(url)
    with closing(sqlite3.connect(golden(revision, folder))) as old, engine.begin() as connection:
        connection.exec_driver_sql(f'CREATE SCHEMA "{address.schema}"')
        config = Config()
        config.set_main_option("script_location", str(MIGRATIONS))
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
        tables = ["autotune_searches", "autotune_probes"] + (["autotune_traces"] if revision > "0001" else [])
        for table in tables:
            rows = old.execute(f"SELECT * FROM {table}")
            names = [column[0] for column in rows.description]
            insert = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join(f':{name}' for name in names)})"
            for row in rows.fetchall():
                connection.execute(text(insert), dict(zip(names, row, strict=True)))
        last = "SELECT setval(pg_get_serial_sequence('autotune_probes', 'id'), (SELECT max(id) FROM autotune_probes))"
        connection.execute(text(last))
    engine.dispose()


@pytest.mark.parametrize("revision", schema.REVISIONS)
def test_a_golden_ledger_is_searched_on(revision: str, tmp_path: Path, url: str) -> None:
    if url.startswith("sqlite"):
        url = str(golden(revision, tmp_path))
    else:
        golden_on_server(revision, tmp_path, url)
    with Store.open(url) as store:
        answered, interrupted = store.searches()
        assert answered.answer is not None
        # Keys were made up for the golden ledgers, and what they answer is not the whole of what their plans ask for.
        for record, newest in ((interrupted, 2), (answered, 3)):
            plan = replace(record.plan, space=(), effective_batch=None, eval_batch=None, other_allocators=())
            workload = replace(record.workload, evaluates=False, loader=None, data_set_size=None)
            key = search_key(plan, workload, record.machine)
            engine = ours(url)
            with for_writing(engine).begin() as connection:
                written = text(
                    "UPDATE autotune_searches SET key = :key, based_on = NULL, lease_until = NULL,"
                    " answer = replace(answer, '\"complete\": false', '\"complete\": true') WHERE id = :id"
                )
                connection.execute(written, {"key": key, "id": record.id})
            engine.dispose()
            before = store.probes(record.id)
            prober = FakeProber(per_sample_bytes=record.budget.limit_bytes // 28)
            notes = Notes()
            session = Session(plan, store, prober, notes, workload, record.machine, record.budget, time.monotonic())
            result = session.run(fresh=False)
            assert store.get(result.search_id).state is SearchState.ANSWERED
            if record is interrupted:
                assert notes.said == [f"going on with search {record.id}: 0 finished probes are used again"]
                assert (result.search_id, result.answer.max_batch) == (record.id, 24)
            else:
                assert result.from_ledger
                assert (result.answer.max_batch, len(prober.asked)) == (27, 1)
                assert facts(*store.probes(record.id)) == facts(*before)
            assert len(store.searches()) == newest
    assert differences(url) == []


def go_back(url: str, *statements: str) -> None:
    """Make a ledger as schema 0001 had it, then run these statements."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    engine = ours(url)
    with for_writing(engine).begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "0001")
        for statement in statements:
            connection.exec_driver_sql(statement)
    engine.dispose()


OTHER = search(
    "other",
    created=datetime(2026, 2, 1, tzinfo=UTC),
    plan=replace(SEARCH.plan, settings=Settings(precision=Precision.TF32, accumulate=2)),
)


def test_every_old_probe_gets_the_settings_of_its_own_plan(store: Store, url: str) -> None:
    written = {search.id: search for search in (SEARCH, OTHER)}
    for id_, record in written.items():
        store.begin(record)
        store.add_probe(id_, PROBE)
        store.add_probe(id_, TRACED_PROBE)
    go_back(url)
    with Store.open(url) as again:
        for id_, record in written.items():
            lost = {"settings": record.plan.settings, "trace": None, "evaluate_at": None, "ranks": ()}
            then = [replace(probe, **lost) for probe in (PROBE, TRACED_PROBE)]  # type: ignore[arg-type]
            assert again.probes(id_) == tuple(then)
    assert differences(url) == []


DAMAGED_PLANS = [
    "'{''settings'': 7}'",
    '\'{"settings": {"precision": "bf16"}\'',
    "''",
    "'7'",
    "'[]'",
    "'{}'",
    "'{\"settings\": null}'",
    "'{\"settings\": [1]}'",
    "'" + "[" * 100_000 + "'",
]
SQLITE_TAKES = ["x'fffe'", "7", "0.5", "CAST(x'ff' AS TEXT)"]


@pytest.mark.parametrize("plan", [*DAMAGED_PLANS, *SQLITE_TAKES], ids=lambda plan: plan[:30])
def test_a_damaged_plan_keeps_nobody_from_the_other_searches(store: Store, url: str, plan: str) -> None:
    if plan not in DAMAGED_PLANS[:2] and not url.startswith("sqlite"):
        pytest.skip("only SQLite lets anything into a column of text; of text two are enough")
    for record in (SEARCH, OTHER):
        store.begin(record)
        store.add_probe(record.id, PROBE)
    go_back(url, f"UPDATE autotune_searches SET plan = {plan} WHERE id = '{SEARCH.id}'")
    with Store.open(url) as again:
        read = again.get(OTHER.id)
        assert read == replace(OTHER, lease_until=read.lease_until), "an old ledger knows of no leases"
        assert again.probes(OTHER.id) == (replace(PROBE, settings=OTHER.plan.settings, evaluate_at=None, ranks=()),)
    engine = ours(url)
    with engine.begin() as connection:
        query = f"SELECT settings FROM autotune_probes WHERE search_id = '{SEARCH.id}'"
        assert connection.scalars(text(query)).all() == ["{}"]
    engine.dispose()


def test_a_newer_schema_is_refused_with_the_cure(store: Store, url: str) -> None:
    engine = ours(url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE autotune_alembic_version SET version_num = '0999'"))
    engine.dispose()
    with pytest.raises(StoreError) as caught:
        Store.open(url)
    assert "has schema '0999'" in caught.value.message
    assert f"knows no newer one than '{schema.HEAD}'" in caught.value.message
    assert "pip install -U autotune-torch" in caught.value.hint
    assert "--storage" in caught.value.hint


def test_opening_a_ledger_that_is_up_to_date_runs_no_migration(
    store: Store, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a migration ran")

    monkeypatch.setattr(schema, "_upgrade", refuse)
    Store.open(url).close()


def broken(folder: Path, step: str) -> str:
    """Where the schema would lie if its migration failed at the end of this step."""
    migrations = folder / "storage" / "migrations"
    shutil.copytree(MIGRATIONS, migrations, ignore=shutil.ignore_patterns("__pycache__"))
    file = migrations / "versions" / f"{step}.py"
    file.write_text(
        re.sub(r"(def downgrade)", r'    op.execute("SELECT * FROM nosuch")\n\n\n\1', file.read_text(), count=1)
    )
    return str(folder / "storage" / "schema.py")


def test_a_migration_that_fails_leaves_a_new_ledger_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "ledger.db"
    with monkeypatch.context() as patch:
        patch.setattr(schema, "__file__", broken(tmp_path, "0001_searches_and_probes"))
        with pytest.raises(StoreError, match="no such table: nosuch"):
            Store.open(str(path))
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == []
    with Store.open(str(path)) as store:
        store.begin(SEARCH)


def test_a_migration_that_fails_leaves_the_old_ledger_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = golden("0001", tmp_path)
    with closing(sqlite3.connect(path)) as connection:
        before = list(connection.iterdump())
    with monkeypatch.context() as patch:
        patch.setattr(schema, "__file__", broken(tmp_path, "0002_traces_and_settings"))
        with pytest.raises(StoreError, match="no such table: nosuch"):
            Store.open(str(path))
    with closing(sqlite3.connect(path)) as connection:
        assert list(connection.iterdump()) == before
    with Store.open(str(path)) as store:
        assert len(store.probes(SEARCH.id)) == 2


def test_alembic_s_own_errors_are_translated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "__file__", str(tmp_path / "nowhere" / "schema.py"))
    with pytest.raises(StoreError, match="migrations"):
        Store.open(str(tmp_path / "ledger.db"))
