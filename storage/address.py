"""Where a ledger lives: a file path or database URL of the user, read into one meaning. Passwords stay out of texts."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from autotune.errors import StoreError

_FORMS = "pass `--storage FILE`, `--storage sqlite:///FILE` or `--storage postgresql+psycopg://USER@HOST/DATABASE`"
DEFAULT_SCHEMA = "autotune"
"""Where the tables lie in PostgreSQL unless the address says ``?schema=NAME``: out of the way of others' tables."""
# What PostgreSQL takes without folding or cutting it; names that begin with pg_ are its own.
_SCHEMA_NAME = re.compile(r"(?!pg_)[a-z_][a-z0-9_]{0,62}")
# Two letters or more, so that a Windows drive (``C:\``) is still a path.
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """One ledger, found."""

    url: URL
    """SQLite with an absolute path, or PostgreSQL through psycopg 3."""
    path: Path | None
    """The SQLite file; None for a server."""
    schema: str = ""
    """Of the tables in PostgreSQL; empty for SQLite."""

    @property
    def label(self) -> str:
        """The ledger as messages name it: the file, or the URL without password and options, but for a schema."""
        if self.path:
            return str(self.path)
        named = {} if self.schema == DEFAULT_SCHEMA else {"schema": self.schema}
        return self.url.set(query=named).render_as_string(hide_password=True)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Texts of it that no message may repeat: passwords as they are, and percent-encoded."""
        options = (value for name, value in self.url.query.items() if "password" in name)
        found = (str(self.url.password or ""), *(text for one in options for text in _texts(one)))
        told = [text for text in found if text]
        return (*told, *(quote(text, safe="") for text in told))


def parse_address(text: str) -> Address:
    """Read a plain path, ``sqlite:///FILE``, ``postgresql+psycopg://…``, ``postgresql://…`` or ``postgres://…``.

    A server's may say ``?schema=NAME`` beside the options of the driver.
    ``~`` is the home directory and a relative path is taken from the current directory, once, here.

    Raises:
        StoreError: the text is none of these, or names a database that would not outlive the process.
    """
    if not text.strip() or "\0" in text or not _is_unicode(text):
        raise StoreError(f"the address of the ledger is {'not text' if text.strip() else 'empty'}", hint=_FORMS)
    if "://" not in text:
        if _SCHEME.match(text):
            hint = f"{_FORMS}; a file of such a name needs ./ before it"
            raise StoreError(f"{_masked(text)} is not the address of a ledger", hint=hint)
        return _sqlite(text)
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        # The parser's own words are left out: they can quote a piece of the password.
        raise StoreError(f"{_masked(text)} is not the address of a ledger", hint=_FORMS) from None
    if url.drivername in ("postgres", "postgresql", "postgresql+psycopg"):
        names = _texts(url.query.get("schema", DEFAULT_SCHEMA))
        if len(names) != 1 or not _SCHEMA_NAME.fullmatch(names[0]):
            raise StoreError(
                f"{' and '.join(map(repr, names))} is no name of a schema for the ledger",
                hint="name one in small letters, digits and underscores: postgresql+psycopg://USER@HOST/DATABASE?schema=autotune",
            )
        driver_url = url.difference_update_query(["schema"]).set(drivername="postgresql+psycopg")
        return Address(url=driver_url, path=None, schema=names[0])
    if url.drivername not in ("sqlite", "sqlite+pysqlite"):
        raise StoreError(f"a ledger cannot be kept in {url.drivername} ({_masked(text)})", hint=_FORMS)
    if url.query or url.host:
        raise StoreError(
            f"{_masked(text)}: a SQLite address takes a path after three slashes and no options", hint=_FORMS
        )
    if not url.database or url.database == ":memory:":
        raise StoreError(f"{text} keeps the ledger in memory, where it would be lost", hint=_FORMS)
    return _sqlite(url.database)


def _is_unicode(text: str) -> bool:
    """False for lone surrogates, as bytes that are no UTF-8 become on a command line in a URL."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return "://" not in text and _SCHEME.match(text) is None  # a file may be called so
    return True


def _sqlite(path_text: str) -> Address:
    # Absolute, because a connection is opened for each transaction and the caller may change directory in between.
    try:
        path = Path(os.path.abspath(Path(path_text).expanduser()))
    except RuntimeError as error:
        raise StoreError(f"{path_text}: {error}", hint="write the path in full, without ~") from error
    return Address(url=URL.create("sqlite", database=str(path)), path=path)


def _texts(value: str | tuple[str, ...]) -> tuple[str, ...]:
    """An option of a URL, given once or several times."""
    return (value,) if isinstance(value, str) else value


def _masked(text: str) -> str:
    """The user's text up to where a password could begin."""
    scheme, slashes, rest = text.partition("://")
    return f"{scheme}{slashes}{'…' if rest else ''}" if slashes else text.partition(":")[0] + ":…"
