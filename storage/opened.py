"""A ledger that was found and has its tables: what everybody who reads or writes it begins with."""

import os
import shlex
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Self

from sqlalchemy import Connection, Engine, func, select

from autotune.errors import UsageError
from autotune.storage.address import Address, parse_address
from autotune.storage.door import translated
from autotune.storage.engine import make_engine
from autotune.storage.owners import why_ended
from autotune.storage.schema import is_there, prepare

if TYPE_CHECKING:
    from sqlalchemy.orm import Session  # takes long to load, and a list of searches does without


class Opened:
    """One open ledger."""

    def __init__(self, engine: Engine, address: Address) -> None:
        """Use ``open``, which also prepares the tables."""
        self._engine = engine
        self._address = address

    @classmethod
    def open(cls, url: str, *, create: bool = True) -> Self:
        """Open the ledger at a path or database URL.

        Args:
            url: see ``parse_address``.
            create: make the ledger, its folder and its tables where they are missing. False: refuse, and leave
                nothing behind; an older ledger is brought up to date all the same.

        Raises:
            UsageError: the path is a directory; there is no ledger, and none is to be made.
            StoreError: not an address, not a ledger, not reachable, not writable, locked for too long, or written by
                a newer autotune.
        """
        address = parse_address(url)
        if address.path is not None and os.path.isdir(address.path):
            inside = shlex.quote(str(address.path / "ledger.sqlite3"))
            raise UsageError(f"{address.path} is a directory", hint=f"name a file: --storage {inside}")
        with translated(address):
            engine = make_engine(address)
            if not create and not is_there(engine, address):
                raise UsageError(
                    f"no ledger at {address.label}",
                    hint="look at --storage; a search makes one: autotune search model.py",
                )
            prepare(engine, address, writes=create)
        return cls(engine, address)

    def close(self) -> None:
        """Let go of the database. Calling it twice is fine."""
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _why(self, session: "Session | Connection", owner: object, lease_until: object) -> str:
        """Why a search in state ``running`` does not run; empty if it does."""
        lease = lease_until if isinstance(lease_until, datetime) else None
        return why_ended(str(owner), lease, self._now(session))

    def _now(self, session: "Session | Connection") -> datetime:
        """The ledger's own time: several hosts need not agree on theirs."""
        if self._address.path is None:
            now: datetime = session.scalars(select(func.clock_timestamp())).one()
            return now.astimezone(UTC)
        return datetime.now(UTC)
