"""The one door out: what SQLAlchemy, the driver, Alembic or the file system raise becomes a ``StoreError`` with a cure."""

import shlex
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy.engine import URL
from sqlalchemy.exc import SQLAlchemyError, StatementError

from autotune.errors import DamagedRow, StoreError
from autotune.masked import MASK, without_passwords
from autotune.storage.address import Address
from autotune.storage.engine import BUSY_TIMEOUT_MS

_ROOM_BYTES = 128 << 10
"""Less than this is no room for a transaction: the index of what was written ahead alone takes 32 KiB."""
ELSEWHERE = "pass another `--storage FILE`"

_STILL_LOCKED = f"is locked by another process, still after {BUSY_TIMEOUT_MS / 1000:g} s"
_MOVE_AWAY = f"move the file away, or {ELSEWHERE}"
_LOOK_AT_FOLDER = f"look at the permissions with `ls -ld {{folder}} {{path}}`, or {ELSEWHERE}"
_WAIT = f"see who holds it with `fuser -v {{path}}` and run again when that has ended, or {ELSEWHERE}"
_LOCAL_DISK = (
    "SQLite needs a local disk, not a network file system, and room within quota and `ulimit -f`: "
    f"{ELSEWHERE}, or for several machines --storage postgresql+psycopg://USER@HOST/DATABASE"
)
# By primary result code, https://www.sqlite.org/rescode.html: what happened, what to type next.
_SQLITE = {
    sqlite3.SQLITE_BUSY: (_STILL_LOCKED, _WAIT),
    sqlite3.SQLITE_LOCKED: (_STILL_LOCKED, _WAIT),
    sqlite3.SQLITE_NOTADB: ("is not a SQLite database", _MOVE_AWAY),
    sqlite3.SQLITE_CORRUPT: ("is damaged", _MOVE_AWAY),
    sqlite3.SQLITE_CANTOPEN: ("cannot be opened", _LOOK_AT_FOLDER),
    sqlite3.SQLITE_READONLY: ("cannot be written", _LOOK_AT_FOLDER),
    sqlite3.SQLITE_PERM: ("cannot be written", _LOOK_AT_FOLDER),
    sqlite3.SQLITE_FULL: ("cannot grow", f"free space on the disk (`df -h {{folder}}`), or {ELSEWHERE}"),
    sqlite3.SQLITE_IOERR: ("cannot be read or written", _LOCAL_DISK),
    sqlite3.SQLITE_PROTOCOL: ("cannot be locked", _LOCAL_DISK),
}

_ASK = "check that the server answers: `{psql}`"
# By SQLSTATE, https://www.postgresql.org/docs/current/errcodes-appendix.html; connecting has none in psycopg 3.
_POSTGRES = {
    "55P03": (f" {_STILL_LOCKED}", "see who holds it: `{psql} -c 'SELECT * FROM pg_stat_activity'`, and run again"),
    "53100": (" cannot grow", "free space on the server's disk"),
    "42501": (
        " may not be used",
        "let its owner type: GRANT ALL ON SCHEMA {schema} TO you, with its tables and sequences",
    ),
    "25006": (" cannot be written", "name the server that takes writes, not a replica"),
}


@contextmanager
def translated(address: Address) -> Iterator[None]:
    """Turn every foreign exception of the block into a ``StoreError`` that names the ledger; the cause stays attached."""
    try:
        yield
    # sqlite3 raises the last two unwrapped, for a number beyond 64 bits and for text that is not Unicode; ``anchor`` is its.
    except (SQLAlchemyError, sqlite3.Error, OSError, OverflowError, UnicodeEncodeError) as error:
        raise store_error(error, address) from error


def store_error(error: BaseException, address: Address) -> StoreError:
    """Say what went wrong with the ledger at ``address``, and what to type next."""
    # The driver's own words: SQLAlchemy's would add the statement with the values of the user's run.
    cause = error.orig if isinstance(error, StatementError) and error.orig is not None else error
    words = " ".join(str(cause).split()) or type(cause).__name__
    for secret in address.secrets:
        words = words.replace(secret, MASK)
    words = without_passwords(words)
    if address.path is None:
        what, hint = _POSTGRES.get(getattr(cause, "sqlstate", None) or "", ("", _ASK))
        psql = f"psql {shlex.quote(_psql_url(address))}"
        hint = hint.format(psql=psql, database=shlex.quote(str(address.url.database)), schema=address.schema)
        return StoreError(f"ledger {address.label}{what}: {words}", hint=f"{hint}, or {ELSEWHERE}")
    what, hint = "cannot be used", _MOVE_AWAY
    if isinstance(cause, sqlite3.Error):
        # Missing where the sqlite3 module itself complains, not the library beneath.
        code = getattr(cause, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_IOERR and _is_full(_existing_folder(address.path)):
            code = sqlite3.SQLITE_FULL  # of the files beside the ledger SQLite does not say why they cannot grow
        what, hint = _SQLITE.get(code, (what, hint))
    elif isinstance(cause, OSError):
        what, hint = "cannot be opened", _LOOK_AT_FOLDER
    hint = hint.format(path=shlex.quote(str(address.path)), folder=shlex.quote(str(_existing_folder(address.path))))
    return StoreError(f"ledger {address.label} {what}: {words}", hint=hint)


def damaged_row(table: str, name: str, search_id: str, why: str) -> DamagedRow:
    """Say which row says nothing that can be read, and how to be rid of its search."""
    hint = f"see the others with `autotune runs ls`, drop this one with `autotune runs rm {search_id}`, or {ELSEWHERE}"
    return DamagedRow(f"{table}, id {name} is damaged: {why}", hint=hint)


def _psql_url(address: Address) -> str:
    url = address.url
    bare = URL.create("postgresql", username=url.username, host=url.host, port=url.port, database=url.database)
    return bare.render_as_string()


def _existing_folder(path: Path) -> Path:
    return next(folder for folder in path.parents if folder.exists() or folder == folder.parent)


def _is_full(folder: Path) -> bool:
    return shutil.disk_usage(folder).free < _ROOM_BYTES
