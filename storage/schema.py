"""The version of the tables: made when a ledger is new, brought up to date when it is old, refused when it is newer."""

import shlex
from pathlib import Path

from filelock import FileLock, Timeout
from sqlalchemy import Connection, Engine, column, func, inspect, select, table

from autotune.errors import StoreError
from autotune.storage.address import Address
from autotune.storage.door import ELSEWHERE
from autotune.storage.engine import BUSY_TIMEOUT_MS, for_writing
from autotune.storage.tables import PREFIX

VERSION_TABLE = "autotune_alembic_version"
"""A version table of its own: others may keep Alembic's default one in the same database."""

REVISIONS = ("0001", "0002", "0003")
"""Every revision in ``migrations/versions``, oldest first: checking a ledger needs neither Alembic nor the disk."""

HEAD = REVISIONS[-1]

# Any fixed number serves, as long as every version of autotune uses the same: "auto" in ASCII.
_POSTGRES_LOCK = 0x6175746F


def prepare(engine: Engine, address: Address) -> None:
    """Make sure that the tables are there and of this version. One short query where they are.

    Safe to run in several processes at once: one of them works, the others wait and find it done.

    Raises:
        StoreError: the ledger was written by a newer autotune, or another process holds the lock for too long.
    """
    if address.path is None:
        if not _is_ready(engine, address):
            _upgrade(engine, address)
        return
    _make_folders(address.path.parent)
    if address.path.exists() and address.path.stat().st_size > 0 and _is_ready(engine, address):
        return
    lock_path = f"{address.path}.lock"
    try:
        with FileLock(lock_path, timeout=BUSY_TIMEOUT_MS / 1000, mode=0o644):
            _write_ahead(engine)
            _upgrade(engine, address)
    except Timeout as error:
        raise StoreError(
            f"ledger {address.label}: another process has been preparing it for {BUSY_TIMEOUT_MS / 1000:g} s",
            hint=f"see who holds the lock with `fuser -v {shlex.quote(lock_path)}`, or {ELSEWHERE}",
        ) from error


def _make_folders(folder: Path) -> None:
    """Make what is missing; not everybody may write there, whatever the umask (SQLite makes its files so by itself)."""
    if not folder.is_dir():
        _make_folders(folder.parent)
        folder.mkdir(mode=0o775, exist_ok=True)


def is_there(engine: Engine, address: Address) -> bool:
    """Tell whether there is a ledger of any version; makes nothing.

    Raises:
        StoreError: a newer autotune wrote it.
    """
    if address.path is not None and not (address.path.exists() and address.path.stat().st_size > 0):
        return False  # connecting would make the file
    with engine.connect() as connection:
        return revision_of(connection, address) is not None


def is_ours(name: str | None, kind: str, _: object) -> bool:
    """Alembic's filter of what to compare: tables of others in the same database are none of its business."""
    return kind != "table" or (name is not None and name.startswith(PREFIX))


def _is_ready(engine: Engine, address: Address) -> bool:
    with engine.connect() as connection:
        # A file restored from a dump, say, has the tables without the journal mode.
        in_mode = address.path is None or connection.exec_driver_sql("PRAGMA journal_mode").scalar_one() == "wal"
        return in_mode and revision_of(connection, address) == HEAD


def revision_of(connection: Connection, address: Address) -> str | None:
    """Read the revision of the tables; None where there are none."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    revision = connection.scalar(select(column("version_num")).select_from(table(VERSION_TABLE)))
    if revision is not None and revision not in REVISIONS:
        raise StoreError(
            f"ledger {address.label} has schema {str(revision)!r}, "
            f"and this autotune knows no newer one than {HEAD!r}: a newer autotune wrote it",
            hint=f"pip install -U autotune-torch, or {ELSEWHERE}",
        )
    return revision


def _write_ahead(engine: Engine) -> None:
    """Let readers and a writer work side by side. A property of the file: set once, and not inside a transaction.

    Where the file system cannot do it SQLite keeps its old mode, which is slower and just as safe.
    """
    connection = engine.raw_connection()
    try:
        connection.cursor().execute("PRAGMA journal_mode=WAL")
    finally:
        connection.close()


def _upgrade(engine: Engine, address: Address) -> None:
    # Costs a tenth of a second to import and is needed once in the life of a ledger.
    from alembic import command
    from alembic.config import Config
    from alembic.util import CommandError

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    # One transaction for all steps and the version: a crash leaves the old ledger, whole.
    with for_writing(engine).begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(select(func.pg_advisory_xact_lock(_POSTGRES_LOCK)))
        if revision_of(connection, address) == HEAD:
            return
        config.attributes["connection"] = connection
        try:
            command.upgrade(config, "head")
        except CommandError as error:
            raise StoreError(
                f"ledger {address.label} cannot be brought to schema {HEAD!r}: {error}",
                hint="pip install --force-reinstall autotune-torch",
            ) from error
