"""How a database is spoken to: one engine per store, one connection per transaction, SQLite's switches."""

from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.pool import NullPool

from autotune.errors import StoreError
from autotune.storage.address import Address

if TYPE_CHECKING:
    from sqlalchemy.engine.interfaces import DBAPIConnection
    from sqlalchemy.pool import ConnectionPoolEntry

BUSY_TIMEOUT_MS = 30_000
"""How long a transaction waits for other writers of a SQLite file before it gives up."""

_WRITES = "autotune_writes"


def make_engine(address: Address) -> Engine:
    """Make an engine; nothing is connected yet.

    Connections are not kept between transactions: nothing to inherit across a fork, nothing to go stale during a
    long probe, and a SQLite file at rest is whole without its write-ahead log.

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
    return engine


def for_writing(engine: Engine) -> Engine:
    """Return the same engine, its transactions taking SQLite's write lock at once.

    A transaction that reads first and asks for the write lock later fails without waiting when another writer was
    faster, whatever the busy timeout.
    """
    return engine.execution_options(**{_WRITES: True})


def _prepare_connection(connection: "DBAPIConnection", _: "ConnectionPoolEntry") -> None:
    # The driver must not begin transactions by itself: _begin does.
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")
    cursor.execute("PRAGMA synchronous=NORMAL")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


def _begin(connection: Connection) -> None:
    writes = connection.get_execution_options().get(_WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
