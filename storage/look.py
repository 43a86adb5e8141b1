"""A ledger looked at for ``autotune doctor``: where it is and whether it can be used. Makes and changes nothing."""

import os
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import func, select

from autotune.errors import StoreError
from autotune.storage.address import parse_address
from autotune.storage.door import ELSEWHERE, translated
from autotune.storage.engine import make_engine
from autotune.storage.schema import HEAD, is_there, revision_of
from autotune.storage.tables import SearchRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """What a ledger is."""

    label: str
    """File, or address without its password."""
    schema: str | None
    """Revision of its tables; None = there is none yet, and the first search makes it."""
    searches: int | None
    """None where its tables are of another revision than this autotune's."""


def look(url: str) -> Looked:
    """Look at the ledger at a path or database URL.

    Raises:
        StoreError: not an address, not a ledger, not reachable, not writable, or written by a newer autotune.
    """
    address = parse_address(url)
    with translated(address):
        if address.path is not None:
            _check_writable(address.path)
        engine = make_engine(address)
        try:
            if not is_there(engine, address):
                return Looked(label=address.label, schema=None, searches=None)
            with engine.connect() as connection:
                schema = revision_of(connection, address)
                count = connection.scalar(select(func.count()).select_from(SearchRow)) if schema == HEAD else None
        finally:
            engine.dispose()
    return Looked(label=address.label, schema=schema, searches=count)


def _check_writable(path: Path) -> None:
    if path.is_dir():
        raise StoreError(f"{path} is a directory", hint=f"name a file in it, or {ELSEWHERE}")
    place = path if path.exists() else next(folder for folder in path.parents if folder.exists())
    if not os.access(place, os.W_OK):
        raise StoreError(f"ledger {path}: {place} cannot be written", hint=f"look at `ls -ld {place}`, or {ELSEWHERE}")
