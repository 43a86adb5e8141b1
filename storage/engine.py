"""How a database is spoken to: one engine per store, one connection per transaction, SQLite's switches."""

import sqlite3
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.pool import NullPool

from autotune.errors import StoreError
from autotune.storage.address import Address

if TYPE_CHECKING:
    from sqlalchemy.engine.interfaces import DBAPIConnection
    from sqlalchemy.pool import ConnectionPoolEntry

BUSY_TIMEOUT_MS = 30_000
"""How long a transaction waits for other writers before it gives up."""

_WRITES = "autotune_writes"


def make_engine(address: Address) -> Engine:
    """Make an engine; nothing is connected yet.

    Connections are not kept between transactions: nothing to go stale during a long probe, or to be in the middle of
    something when it is inherited across a fork.

    Raises:
        StoreError: the driver is not installed.
    """
    try:
        engine = create_engine(address.url, poolclass=NullPool)
    except ImportError as error:
        raise StoreError(
            f"ledger {address.label} needs the PostgreSQL driver psycopg, which cannot be loaded: {error}",
            hint='pip install "autotune-torch[postgres]"',
        ) from error
    if address.path is not None:
        event.listen(engine, "connect", _prepare_connection)
        event.listen(engine, "begin", _begin)
    else:
        event.listen(engine, "begin", partial(_begin_on_server, schema=address.schema))
    return engine


def anchor(path: Path) -> sqlite3.Connection:
    """A connection that does nothing. As long as one is open the write-ahead log stays.

    The last to leave copies the log into the file and removes it: whole when nobody is there, but after every transaction
    that would be five waits for the disk and two files made and removed in place of one wait. Measured on ext4: 20 ms to
    0.5 ms.
    """
    connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_MS / 1000, check_same_thread=False)
    connection.execute("SELECT 1 FROM sqlite_master").fetchall()  # it is not there before it has read
    return connection


def for_writing(engine: Engine) -> Engine:
    """Return the same engine, its transactions taking SQLite's write lock at once.

    A transaction that reads first and asks for the write lock later fails without waiting when another writer was
    faster, whatever the busy timeout.
    """
    return engine.execution_options(**{_WRITES: True})


def _prepare_connection(connection: "DBAPIConnection", _: "ConnectionPoolEntry") -> None:
    # The driver must not begin transactions by itself: _begin does.
    connection.isolation_level = None
    # Text that is none is for ``convert`` to report with its row; the driver would refuse all rows of the query.
    connection.text_factory = partial(str, encoding="utf-8", errors="replace")
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")
    # Also after the power was lost a finished probe is there: one wait for the disk a probe is nothing.
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


def _begin(connection: Connection) -> None:
    writes = connection.get_execution_options().get(_WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _begin_on_server(connection: Connection, schema: str) -> None:
    # In the transaction, not for the connection: a pooler such as PgBouncer gives connections to others in between.
    setting = "SELECT set_config('search_path', %s, true), set_config('lock_timeout', %s, true)"
    connection.exec_driver_sql(setting, (f'"{schema}"', f"{BUSY_TIMEOUT_MS}ms"))
