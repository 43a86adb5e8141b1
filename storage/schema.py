"""The version of the tables: made when a ledger is new, brought up to date when it is old, refused when it is newer."""

import logging
import shlex
from collections.abc import Collection
from pathlib import Path

from sqlalchemy import Connection, Engine, column, func, inspect, select, table, text

from autotune.errors import StoreError
from autotune.storage.address import DEFAULT_SCHEMA, Address
from autotune.storage.column_types import PREFIX
from autotune.storage.door import ELSEWHERE
from autotune.storage.engine import BUSY_TIMEOUT_MS, for_writing
from autotune.storage.place import network_type

VERSION_TABLE = "autotune_alembic_version"
"""A version table of its own: others may keep Alembic's default one in the same database."""

REVISIONS = ("0001", "0002", "0003", "0004", "0005")
"""Every revision in ``migrations/versions``, oldest first: checking a ledger needs neither Alembic nor the disk."""

HEAD = REVISIONS[-1]

# Any fixed number serves, as long as every version of autotune uses the same: "auto" in ASCII.
_POSTGRES_LOCK = 0x6175746F
_FORMER_SCHEMA = "public"
"""Where the tables lay in PostgreSQL before they had a schema of their own."""

_log = logging.getLogger("autotune")


def prepare(engine: Engine, address: Address, *, writes: bool = True) -> None:
    """Make sure that the tables are there and of this version. One short query where they are.

    Safe to run in several processes at once: one of them works, the others wait and find it done.

    Args:
        engine: of the ledger.
        address: of the ledger.
        writes: whether searches will be recorded; then it is looked at where a file lies, and warned of a network.

    Raises:
        StoreError: the ledger was written by a newer autotune, or another process holds the lock for too long.
    """
    if address.path is None:
        if not _is_ready(engine, address):
            _upgrade(engine, address)
        return
    over_network = network_type(address.path) if writes else ""
    if over_network:
        _log.warning(
            "ledger %s lies on a network file system (%s), where SQLite's locks need not hold between machines: if "
            "several use it, pass --storage postgresql+psycopg://USER@HOST/DATABASE",
            address.label,
            over_network,
        )
    _make_folders(address.path.parent)
    good = {"delete", "wal"} if not writes else {"delete"} if over_network else {"wal"}
    if address.path.exists() and address.path.stat().st_size > 0 and _is_ready(engine, address, good):
        return
    from filelock import FileLock, Timeout  # needed once in the life of a ledger, like Alembic

    lock_path = f"{address.path}.lock"
    try:
        with FileLock(lock_path, timeout=BUSY_TIMEOUT_MS / 1000, mode=0o644):
            _set_journal(engine, "delete" if network_type(address.path) else "wal")
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
        return revision_of(connection, address) is not None or _is_in_former_schema(connection, address)


def is_ours(name: str | None, kind: str, _: object) -> bool:
    """Alembic's filter of what to compare: tables of others in the same database are none of its business."""
    return kind != "table" or (name is not None and name.startswith(PREFIX))


def _is_ready(engine: Engine, address: Address, journals: Collection[str] = ()) -> bool:
    with engine.connect() as connection:
        # A file restored from a dump, say, has the tables without the journal mode.
        in_mode = address.path is None or connection.exec_driver_sql("PRAGMA journal_mode").scalar_one() in journals
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


def _set_journal(engine: Engine, journal: str) -> None:
    """Write ahead (``wal``), so that readers and a writer work side by side; a property of the file, set once.

    Not over a network (``delete``): the index of what was written ahead lies in memory that machines do not share. Where a
    file system cannot do it SQLite keeps its old mode, which is slower and just as safe.
    """
    connection = engine.raw_connection()  # not inside a transaction
    try:
        connection.cursor().execute(f"PRAGMA journal_mode={journal}")
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
            _make_schema(connection, address)
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


def _make_schema(connection: Connection, address: Address) -> None:
    """Make the schema where it is missing, and bring the tables there that an older version put elsewhere."""
    # PostgreSQL asks for the right to make one even where it is there, so look first.
    there = text("SELECT 1 FROM pg_namespace WHERE nspname = :name")
    if connection.execute(there, {"name": address.schema}).first() is None:
        connection.exec_driver_sql(f'CREATE SCHEMA "{address.schema}"')  # a name that ``address`` has checked
    if _is_in_former_schema(connection, address):
        for name in inspect(connection).get_table_names(_FORMER_SCHEMA):
            if is_ours(name, "table", None):
                connection.exec_driver_sql(f'ALTER TABLE "{_FORMER_SCHEMA}"."{name}" SET SCHEMA "{address.schema}"')


def _is_in_former_schema(connection: Connection, address: Address) -> bool:
    if address.schema != DEFAULT_SCHEMA or inspect(connection).has_table(VERSION_TABLE):
        return False
    return inspect(connection).has_table(VERSION_TABLE, schema=_FORMER_SCHEMA)
