"""The ledger's front door: frozen values in, frozen values out, each call a transaction of its own."""

import os
import shlex
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import datetime
from types import TracebackType
from typing import Self

from sqlalchemy import Engine, func, select
from sqlalchemy.orm import Session

from autotune.errors import StoreError, UsageError
from autotune.model import Answer, ProbeResult, SearchRecord, SearchState
from autotune.storage.address import Address, parse_address
from autotune.storage.convert import (
    clean,
    probe_from_row,
    probe_to_row,
    search_from_row,
    search_to_row,
    write_answer,
)
from autotune.storage.door import translated
from autotune.storage.engine import for_writing, make_engine
from autotune.storage.schema import is_there, prepare
from autotune.storage.tables import ProbeRow, SearchRow

_NEWEST_FIRST = (SearchRow.created.desc(), SearchRow.id.desc())
_LIST = "see what is there with `autotune runs ls`"


class Store:
    """One open ledger. What a method wrote is committed when it returns.

    Only ``StoreError`` leaves it, and ``UsageError`` for what the user named and is not there.
    """

    def __init__(self, engine: Engine, address: Address) -> None:
        """Use ``Store.open``, which also prepares the tables."""
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
            prepare(engine, address)
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

    def begin(self, record: SearchRecord) -> None:
        """Add a search.

        Raises:
            StoreError: its id is taken, or it could not be written.
        """
        with self._writing() as session:
            if session.get(SearchRow, record.id) is not None:
                raise StoreError(f"ledger {self._address.label} already has a search {record.id!r}", hint=_LIST)
            session.add(search_to_row(record))

    def reopen(self, search_id: str, owner: str, *, former_owner: str) -> bool:
        """Let ``owner`` continue a search that was interrupted, or whose process died.

        Returns:
            False if somebody other than ``former_owner`` has taken it meanwhile; then nothing is changed.

        Raises:
            StoreError: there is no such search, or its end is final.
        """
        with self._writing() as session:
            row = self._locked(session, search_id)
            if row.state in (SearchState.ANSWERED, SearchState.NO_ANSWER):
                raise StoreError(f"search {search_id} cannot go on: it ended as {row.state!r}", hint=_LIST)
            if row.owner != clean(former_owner):
                return False
            row.state = SearchState.RUNNING.value
            row.owner = clean(owner)
            row.finished = None
            row.message = ""
            return True

    def add_probe(self, search_id: str, result: ProbeResult) -> None:
        """Append a finished probe to a search.

        Raises:
            StoreError: there is no such search, or the probe could not be written.
        """
        with self._writing() as session:
            self._locked(session, search_id)  # two writers of one search must not count at once
            last = session.scalar(select(func.max(ProbeRow.number)).where(ProbeRow.search_id == search_id))
            session.add(probe_to_row(search_id, (last or 0) + 1, result))

    def finish(
        self, search_id: str, *, state: SearchState, answer: Answer | None, message: str, finished: datetime
    ) -> None:
        """Write down how a search ended.

        Raises:
            StoreError: there is no such search, or state and answer contradict each other.
        """
        _check_end(search_id, state, answer)
        with self._writing() as session:
            row = self._locked(session, search_id)
            row.state = state.value
            row.finished = finished
            row.message = clean(message)
            write_answer(row, answer)

    def latest(self, key: str, states: Collection[SearchState]) -> SearchRecord | None:
        """Return the newest search that asked this question and is in one of these states; None if there is none."""
        wanted = [state.value for state in states]
        query = select(SearchRow).where(SearchRow.key == key, SearchRow.state.in_(wanted)).order_by(*_NEWEST_FIRST)
        with self._reading() as session:
            row = session.scalars(query.limit(1)).first()
            return None if row is None else search_from_row(row)

    def get(self, search_id: str) -> SearchRecord:
        """Return a search by its id, or by as much of its beginning as no other search shares.

        Raises:
            UsageError: no search or several begin like this.
        """
        # Not LIKE: it has wildcards, and ignores case in one database and not in the other.
        begins = func.substr(SearchRow.id, 1, len(search_id)) == search_id
        with self._reading() as session:
            ids = session.scalars(select(SearchRow.id).where(begins).order_by(SearchRow.id)).all() if search_id else []
            if search_id not in ids and len(ids) > 1:
                shown = ", ".join(ids[:5]) + (", …" if len(ids) > 5 else "")
                raise UsageError(f"{len(ids)} searches begin with {search_id!r}: {shown}", hint=_LIST)
            row = session.get(SearchRow, ids[0] if len(ids) == 1 else search_id)
            if row is None:
                raise UsageError(self._missing(search_id), hint=_LIST)
            return search_from_row(row)

    def searches(self, limit: int = 50) -> tuple[SearchRecord, ...]:
        """Return at most ``limit`` searches, newest first."""
        with self._reading() as session:
            rows = session.scalars(select(SearchRow).order_by(*_NEWEST_FIRST).limit(max(limit, 0)))
            return tuple(search_from_row(row) for row in rows)

    def probes(self, search_id: str) -> tuple[ProbeResult, ...]:
        """Return the probes of a search in the order they were added; none for a search that has none.

        Raises:
            StoreError: there is no such search.
        """
        query = select(ProbeRow).where(ProbeRow.search_id == search_id).order_by(ProbeRow.number)
        with self._reading() as session:
            self._known(session.get(SearchRow, search_id), search_id)
            return tuple(probe_from_row(row) for row in session.scalars(query))

    @contextmanager
    def _reading(self) -> Iterator[Session]:
        with translated(self._address), Session(self._engine) as session, session.begin():
            yield session

    @contextmanager
    def _writing(self) -> Iterator[Session]:
        with translated(self._address), Session(for_writing(self._engine)) as session, session.begin():
            yield session

    def _locked(self, session: Session, search_id: str) -> SearchRow:
        # SQLite has no row locks and needs none: the whole transaction holds the write lock.
        return self._known(session.get(SearchRow, search_id, with_for_update=True), search_id)

    def _known(self, row: SearchRow | None, search_id: str) -> SearchRow:
        if row is None:
            raise StoreError(self._missing(search_id), hint=_LIST)
        return row

    def _missing(self, search_id: str) -> str:
        return f"ledger {self._address.label} has no search {search_id!r}"


def _check_end(search_id: str, state: SearchState, answer: Answer | None) -> None:
    # An interrupted search may have an answer: the best it had when time ran out.
    agrees = {
        SearchState.ANSWERED: answer is not None,
        SearchState.NO_ANSWER: answer is None,
        SearchState.INTERRUPTED: True,
        SearchState.RUNNING: False,
    }
    if not agrees[state]:
        said = "without an answer" if answer is None else f"with the answer {answer.max_batch}"
        raise StoreError(f"search {search_id} cannot end as {state.value!r} {said}", hint=_LIST)
