"""What stands in the way of a ledger in real life: each is one error that says what to type next, and nothing is lost."""

import os
import pwd
import resource
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from sqlalchemy import event, exc

from autotune.errors import StoreError
from autotune.model import SearchState
from autotune.storage import engine as engine_module
from autotune.storage import store as store_module
from autotune.storage.address import parse_address
from autotune.storage.door import store_error
from autotune.storage.store import Store
from tests.contract.samples import PROBE, SEARCH, search
from tests.contract.searching import LARGEST, asked_for, planted, undisturbed
from tests.contract.searching import search as searched
from tests.contract.test_searching import keys
from tests.postgres import SOMEBODY, Server


@contextmanager
def an_ordinary_user() -> Iterator[None]:
    """Within the block this process has no more rights than others: root may write anywhere."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(pwd.getpwnam(SOMEBODY).pw_uid)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that belongs to whoever ``an_ordinary_user`` is, with a ledger in which a search was made."""
    path = Path(mkdtemp(prefix="autotune-test-"))
    with Store.open(str(path / "ledger.db")) as store:  # here: others may not be able to read what this imports
        searched(store, planted())
    for file in (path, path / "ledger.db", path / "ledger.db.lock"):
        if os.geteuid() == 0:
            os.chown(file, pwd.getpwnam(SOMEBODY).pw_uid, -1)
    yield path
    path.chmod(0o700)
    shutil.rmtree(path)


def refuse_before_the_first_probe(path: Path) -> None:
    """A ledger that an ordinary user may not write."""
    prober = planted()
    with (
        an_ordinary_user(),
        pytest.raises(StoreError, match=r"ledger\.db cannot be (opened|written)") as caught,
        Store.open(str(path)) as store,
    ):
        searched(store, prober)
    assert "ls -ld" in caught.value.hint
    assert prober.asked == []


def test_a_new_ledger_in_a_read_only_directory_is_one_error(folder: Path) -> None:
    before = sorted(folder.iterdir())
    folder.chmod(0o500)
    with (
        an_ordinary_user(),
        pytest.raises(StoreError, match=r"new\.db cannot be opened: .*Permission denied") as caught,
    ):
        Store.open(str(folder / "new.db"))
    assert f"`ls -ld {folder} {folder}/new.db`" in caught.value.hint
    assert "--storage" in caught.value.hint
    assert sorted(folder.iterdir()) == before


def test_a_ledger_in_a_directory_that_became_read_only_is_one_error_and_whole(folder: Path) -> None:
    path = folder / "ledger.db"
    folder.chmod(0o500)
    refuse_before_the_first_probe(path)
    folder.chmod(0o700)
    with Store.open(str(path)) as store:
        (record,) = store.searches()
        assert keys(store, record.id) == undisturbed()


def test_a_read_only_file_is_one_error_before_the_first_probe(folder: Path) -> None:
    path = folder / "ledger.db"
    path.chmod(0o400)
    refuse_before_the_first_probe(path)


@pytest.fixture(params=["a file system", "a file"])
def disk(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator["Disk"]:
    """A small file system of its own, where this user may mount one; a file that may not grow."""
    if request.param == "a file":
        yield LimitedFile(tmp_path, monkeypatch)
        return
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "autotune-test", str(tmp_path)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("no file system may be mounted here")
    yield MountedDisk(tmp_path)
    subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


class Disk:
    """Somewhere for a ledger that can be filled up."""

    def __init__(self, place: Path) -> None:
        self.path = place / "ledger.db"

    def fill(self) -> None:
        """Leave no room."""
        raise NotImplementedError

    def free(self) -> None:
        """Make room again."""
        raise NotImplementedError


class MountedDisk(Disk):
    """Another file takes all there is."""

    def fill(self) -> None:
        with (
            self.path.with_name("other").open("wb", buffering=0) as other,
            pytest.raises(OSError, match="No space left"),
        ):
            while True:
                other.write(bytes(4096))

    def free(self) -> None:
        self.path.with_name("other").unlink()


class LimitedFile(Disk):
    """SQLite says the same where its file has as many pages as it may have."""

    def __init__(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(place)
        self._is_full = False
        prepare = engine_module._prepare_connection

        def limited(connection: Any, entry: Any) -> None:
            prepare(connection, entry)
            if self._is_full:
                connection.execute("PRAGMA max_page_count=1")  # SQLite makes of it what the file has

        monkeypatch.setattr(engine_module, "_prepare_connection", limited)

    def fill(self) -> None:
        self._is_full = True

    def free(self) -> None:
        self._is_full = False


def test_a_disk_that_fills_up_ends_the_search_with_an_error_and_it_goes_on_when_there_is_room(disk: Disk) -> None:
    prober = planted()
    recorded = 2

    class Filling:
        def probe(self, *question: Any) -> Any:
            result = prober.probe(*question)
            if len(prober.asked) > recorded:
                disk.fill()
            return replace(result, stdout_tail="x" * 20_000)  # more than is left of a page

    with Store.open(str(disk.path)) as store, pytest.raises(StoreError, match="cannot grow") as caught:
        # One that was opened before, as after a long search; else the file would be full from its start.
        searched(store, Filling())
    assert caught.value.hint.startswith(f"free space on the disk (`df -h {disk.path.parent}`), or ")
    disk.free()
    with Store.open(str(disk.path)) as store:
        (record,) = store.searches()
        assert record.state is SearchState.INTERRUPTED
        assert keys(store, record.id) == undisturbed()[:recorded]
        again = planted()
        result = searched(store, again)
        assert (result.search_id, result.answer.max_batch) == (record.id, LARGEST)
        assert asked_for(again) == undisturbed()[recorded:]


def test_a_file_that_may_not_grow_for_this_process_is_one_error_and_whole(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Store.open(str(path)) as store:
        store.begin(SEARCH)
        store.add_probe(SEARCH.id, PROBE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size, hard))
        try:
            with pytest.raises(StoreError, match=r"ledger\.db cannot (be read or written|grow)") as caught:
                store.add_probe(SEARCH.id, replace(PROBE, stdout_tail="x" * (1 << 20)))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert "--storage" in caught.value.hint
        store.add_probe(SEARCH.id, PROBE)
        assert store.probes(SEARCH.id) == (PROBE, PROBE)


def sqlite_error(code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("boom")
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    ("code", "what", "cure"),
    [
        (sqlite3.SQLITE_PROTOCOL, "cannot be locked", "local disk, not a network file system"),
        (sqlite3.SQLITE_IOERR | 15 << 8, "cannot be read or written", "local disk, not a network file system"),  # _LOCK
        (sqlite3.SQLITE_FULL, "cannot grow", "df -h"),
        (sqlite3.SQLITE_READONLY | 4 << 8, "cannot be written", "ls -ld"),
        (sqlite3.SQLITE_CORRUPT, "is damaged", "move the file away"),
    ],
)
def test_what_a_file_system_does_to_sqlite_is_told_with_the_cure(code: int, what: str, cure: str) -> None:
    wrapped = exc.OperationalError("INSERT", {}, sqlite_error(code))
    told = store_error(wrapped, parse_address("/data/ledger.db"))
    assert told.message == f"ledger /data/ledger.db {what}: boom"
    assert cure in told.hint and "--storage" in told.hint


def mounted(monkeypatch: pytest.MonkeyPatch, *types: tuple[str, Path]) -> None:
    found = [SimpleNamespace(fstype=kind, mountpoint=str(place)) for kind, place in types]
    monkeypatch.setattr(psutil, "disk_partitions", lambda all: found)


def test_a_ledger_on_a_network_file_system_is_warned_of_and_has_no_memory_that_machines_would_have_to_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "home" / "ledger.db"
    mounted(monkeypatch, ("ext4", Path("/")), ("nfs4", tmp_path / "home"))
    with Store.open(str(path)) as store:
        searched(store, planted())
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    (told,) = caplog.messages
    assert told.startswith(f"ledger {path} lies on a network file system (nfs4), where SQLite's locks need not hold")
    assert "--storage postgresql+psycopg://" in told
    with Store.open(str(path)) as again:
        assert len(again.searches()) == 1


def test_a_local_disk_below_a_network_file_system_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    mounted(monkeypatch, ("nfs4", tmp_path), ("nfs", tmp_path / "scratch"), ("xfs", tmp_path / "scratch"))
    Store.open(str(tmp_path / "scratch" / "ledger.db")).close()
    assert caplog.messages == []


class TestServer:
    """What only a server does."""

    def test_the_tables_lie_in_a_schema_of_their_own_unless_the_address_names_another(self, postgres: Server) -> None:
        database = postgres.new_database()
        for schema, expected in (("", "autotune"), ("team_a", "team_a")):
            with Store.open(postgres.url(schema, database=database)) as store:
                store.begin(search(f"in_{expected}"))
            where = f"SELECT count(*) FROM pg_tables WHERE schemaname = '{expected}' AND tablename LIKE 'autotune_%'"
            assert postgres.sql(where, database) == [(4,)]
        assert postgres.sql("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'", database) == [(0,)]
        with Store.open(postgres.url(database=database)) as store:
            assert [one.id for one in store.searches()] == ["in_autotune"]

    def test_tables_that_an_older_version_put_elsewhere_are_brought_along(self, postgres: Server) -> None:
        database = postgres.new_database()
        with Store.open(postgres.url("public", database=database)) as store:
            store.begin(SEARCH)
            store.add_probe(SEARCH.id, PROBE)
        url = postgres.url(database=database)
        for create in (False, True):
            with Store.open(url, create=create) as store:
                assert store.get(SEARCH.id) == SEARCH
                assert store.probes(SEARCH.id) == (PROBE,)
                store.add_probe(SEARCH.id, PROBE)
                store.remove((SEARCH.id,))
                store.begin(SEARCH)
                store.add_probe(SEARCH.id, PROBE)

    def test_a_user_who_may_not_make_a_schema_can_use_one_that_is_there(self, postgres: Server) -> None:
        database = postgres.new_database()
        postgres.sql("CREATE ROLE guest LOGIN", database)
        url = postgres.url(user="guest", database=database)
        with pytest.raises(StoreError, match="may not be used: permission denied for database") as caught:
            Store.open(url)
        assert "GRANT ALL ON SCHEMA autotune" in caught.value.hint
        postgres.sql("CREATE SCHEMA autotune AUTHORIZATION guest", database)
        with Store.open(url) as store:
            store.begin(SEARCH)

    def test_a_reader_makes_nothing(self, postgres: Server) -> None:
        from autotune.errors import UsageError

        database = postgres.new_database()
        with pytest.raises(UsageError, match="no ledger at"):
            Store.open(postgres.url(database=database), create=False)
        assert postgres.sql("SELECT count(*) FROM pg_namespace WHERE nspname = 'autotune'", database) == [(0,)]

    @pytest.mark.parametrize("schema", ["pg_mine", "Mine", "1st", "a-b", 'x"y', "a" * 64, "a&schema=b", "ä"])
    def test_a_schema_that_cannot_be_one_is_refused(self, schema: str) -> None:
        with pytest.raises(StoreError, match="is no name of a schema") as caught:
            Store.open(f"postgresql://me@h/d?schema={schema}")
        assert "?schema=autotune" in caught.value.hint

    def test_a_wrong_password_is_one_error_that_does_not_repeat_it(self, postgres: Server) -> None:
        url = postgres.url().replace("postgres@", "guarded:n0t-it@")
        with pytest.raises(StoreError, match="password authentication failed") as caught:
            Store.open(url)
        assert "n0t-it" not in caught.value.message + caught.value.hint
        assert "guarded:***@" in caught.value.message

    @pytest.mark.parametrize("database", ["nosuch"])
    def test_a_database_that_is_missing_is_one_error_with_a_command(self, postgres: Server, database: str) -> None:
        with pytest.raises(StoreError, match='database "nosuch" does not exist') as caught:
            Store.open(postgres.url(database=database))
        assert "`psql postgresql://postgres@/nosuch" in caught.value.hint

    def test_c35_a_lock_that_outlasts_the_wait_is_one_error(
        self, postgres: Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        import psycopg

        monkeypatch.setattr(engine_module, "BUSY_TIMEOUT_MS", 50)
        url = postgres.new_url()
        with Store.open(url) as store:
            store.begin(SEARCH)
            with psycopg.connect(host=str(postgres.folder), user="postgres") as other:
                other.execute(f"LOCK TABLE {parse_address(url).schema}.autotune_probes")
                with pytest.raises(StoreError, match="is locked by another process") as caught:
                    store.add_probe(SEARCH.id, PROBE)
                assert "pg_stat_activity" in caught.value.hint
            store.add_probe(SEARCH.id, PROBE)

    def test_a_server_that_is_away_while_a_probe_is_written_is_waited_for(
        self, postgres: Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        import psycopg

        monkeypatch.setattr(store_module, "_RECONNECT_S", 0.0)
        with Store.open(postgres.new_url()) as store:
            store.begin(SEARCH)
            refused = iter(range(3))

            def away(*_: object) -> None:
                if next(refused, None) is not None:
                    raise psycopg.OperationalError("the database system is starting up")

            event.listen(store._engine, "do_connect", away)
            store.add_probe(SEARCH.id, PROBE)
            assert store.probes(SEARCH.id) == (PROBE,)

    def test_a_server_that_stays_away_is_one_error(self, postgres: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        import psycopg

        def away(*_: object) -> None:
            raise psycopg.OperationalError("connection refused")

        monkeypatch.setattr(store_module, "BUSY_TIMEOUT_MS", 0)
        with Store.open(postgres.new_url()) as store:
            store.begin(SEARCH)
            event.listen(store._engine, "do_connect", away)
            with pytest.raises(StoreError, match="connection refused") as caught:
                store.add_probe(SEARCH.id, PROBE)
            assert "check that the server answers" in caught.value.hint


Write = Callable[[Store], object]


@pytest.mark.parametrize("write", [lambda store: store.close_orphans(), lambda store: store.remove(("x",))])
def test_nothing_to_do_writes_nothing(store: Store, write: Write) -> None:
    assert write(store) == ()
