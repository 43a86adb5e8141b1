"""The ledger's front door: frozen values in, frozen values out, each call a transaction of its own."""

import sqlite3
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, cast

from sqlalchemy import CursorResult, delete, func, select, update
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from autotune.errors import StoreError, TakenOver
from autotune.model import Answer, ProbeResult, SearchRecord, SearchState, owner_words
from autotune.storage.convert import clean, probe_to_row, search_to_row, write_answer
from autotune.storage.door import translated
from autotune.storage.engine import BUSY_TIMEOUT_MS, anchor, for_writing
from autotune.storage.owners import LONGEST_LEASE
from autotune.storage.reading import LIST, Reader
from autotune.storage.tables import ProbeRow, SearchRow

_RECONNECT_S = 0.5
"""Between two tries to reach a server."""
_FINAL = (SearchState.ANSWERED, SearchState.NO_ANSWER)


class Store(Reader):
    """One open ledger. What a method wrote is committed when it returns.

    Only ``StoreError`` leaves it, and ``UsageError`` for what the user named and is not there.
    """

    _anchor: sqlite3.Connection | None = None
    """From the first transaction that writes on; see ``anchor``."""
    _file: tuple[int, int] | None = None
    """Device and number of the anchored file, which is told by them from another one in its place."""

    def begin(self, record: SearchRecord, *, lease_s: float | None = None) -> None:
        """Add a search.

        Args:
            record: the search.
            lease_s: how long from now it counts as running where its process cannot be seen; None = as it says.

        Raises:
            StoreError: its id is taken, or it could not be written.
        """
        with self._writing() as session:
            if session.get(SearchRow, record.id) is not None:
                raise StoreError(f"ledger {self._address.label} already has a search {record.id!r}", hint=LIST)
            row = search_to_row(record)
            if lease_s is not None:
                row.lease_until = self._lease_end(session, lease_s)
            session.add(row)

    def add(self, record: SearchRecord, probes: Iterable[ProbeResult]) -> bool:
        """Add a whole search that is over, as it was exported from another ledger.

        Returns:
            False if a search of this id is there; then nothing is changed.

        Raises:
            StoreError: it could not be written.
        """
        with self._writing() as session:
            if session.get(SearchRow, record.id) is not None:
                return False
            session.add(search_to_row(record))
            session.flush()
            session.add_all(probe_to_row(record.id, number, probe) for number, probe in enumerate(probes, start=1))
            return True

    def reopen(self, search_id: str, owner: str, *, former_owner: str, lease_s: float) -> bool:
        """Let ``owner`` continue a search that was interrupted, or whose process died.

        Args:
            search_id: of the search.
            owner: who continues it; not a name that was used before.
            former_owner: as it was read; whoever comes second finds another one.
            lease_s: see ``begin``.

        Returns:
            False if somebody other than ``former_owner`` has taken it meanwhile; then nothing is changed.

        Raises:
            StoreError: there is no such search, or its end is final.
        """
        with self._writing() as session:
            row = self._locked(session, search_id)
            if row.owner != clean(former_owner):
                return False
            if row.state in _FINAL:
                raise StoreError(f"search {search_id} cannot go on: it ended as {row.state!r}", hint=LIST)
            row.state = SearchState.RUNNING.value
            row.owner = clean(owner)
            row.finished = None
            row.message = ""
            row.lease_until = self._lease_end(session, lease_s)
            return True

    def renew(self, search_id: str, owner: str, *, lease_s: float) -> None:
        """Say that ``owner`` is still at its search.

        Raises:
            TakenOver: another process has gone on with it meanwhile.
            StoreError: there is no such search any more, or it could not be written.
        """
        with self._writing() as session:
            if not self._renewed(session, search_id, owner, lease_s):
                self._check_owner(self._locked(session, search_id), owner)

    def add_probe(self, search_id: str, result: ProbeResult, *, owner: str = "", lease_s: float | None = None) -> bool:
        """Append a finished probe to a search, whoever owns it by now: what was measured is true all the same.

        Args:
            search_id: of the search.
            result: the probe.
            owner: who ran it; if the search is still theirs, the lease is renewed with it.
            lease_s: see ``begin``.

        Returns:
            Whether it is still theirs; False without a lease.

        Raises:
            StoreError: there is no such search, or the probe could not be written.
        """
        with self._writing() as session:
            # Two writers of one search must not count at once: either statement locks its row.
            theirs = lease_s is not None and self._renewed(session, search_id, owner, lease_s)
            if not theirs:
                query = select(SearchRow.id).where(SearchRow.id == search_id).with_for_update()
                self._known(session.scalar(query), search_id)
            last = session.scalar(select(func.max(ProbeRow.number)).where(ProbeRow.search_id == search_id))
            session.add(probe_to_row(search_id, (last or 0) + 1, result))
            return theirs

    def finish(
        self, search_id: str, *, owner: str, state: SearchState, answer: Answer | None, message: str, finished: datetime
    ) -> None:
        """Write down how a search ended.

        Raises:
            TakenOver: another process has gone on with it meanwhile; nothing is changed.
            StoreError: there is no such search, or state and answer contradict each other.
        """
        _check_end(search_id, state, answer)
        with self._writing() as session:
            row = self._locked(session, search_id)
            self._check_owner(row, owner)
            row.state = state.value
            row.finished = finished
            row.message = clean(message)
            row.lease_until = None
            write_answer(row, answer)

    def close_orphans(self) -> tuple[str, ...]:
        """Write down of all searches whose process is gone that they were interrupted; returns their ids."""
        query = select(SearchRow.id, SearchRow.owner, SearchRow.lease_until)
        query = query.where(SearchRow.state == SearchState.RUNNING.value)
        with self._reading() as session:
            found = [(id_, owner) for id_, owner, lease in session.execute(query) if self._why(session, owner, lease)]
        return tuple(id_ for id_, owner in found if self._close_orphan(id_, owner))

    def _close_orphan(self, search_id: str, owner: str) -> bool:
        with self._writing() as session:
            row = session.get(SearchRow, search_id, with_for_update=True)
            if row is None or row.owner != owner or row.state != SearchState.RUNNING:
                return False  # somebody was faster
            why = self._why(session, owner, row.lease_until)
            if why:
                row.state, row.message = SearchState.INTERRUPTED.value, why
                row.finished, row.lease_until = self._now(session), None
            return bool(why)

    def remove(self, search_ids: Collection[str]) -> tuple[str, ...]:
        """Remove searches with all they recorded, but for those that run; returns the ids of the removed.

        What else is based on them is the caller's business.
        """
        removed = []
        for search_id in search_ids:  # each for itself: no long transaction stands in the way of running searches
            with self._writing() as session:
                query = select(SearchRow.state, SearchRow.owner, SearchRow.lease_until)
                row = session.execute(query.where(SearchRow.id == search_id).with_for_update()).first()
                if row is None:
                    continue
                if row.state == SearchState.RUNNING and not self._why(session, row.owner, row.lease_until):
                    continue
                session.execute(delete(SearchRow).where(SearchRow.id == search_id))
                removed.append(search_id)
        return tuple(removed)

    @contextmanager
    def _writing(self) -> Iterator[Session]:
        with translated(self._address), Session(for_writing(self._engine)) as session, session.begin():
            if self._address.path is None:
                self._reach(session)
            else:
                self._hold(self._address.path)
            yield session

    def close(self) -> None:
        """Let go of the database. Calling it twice is fine."""
        if self._anchor is not None:
            self._anchor.close()
            self._anchor = None
        super().close()

    def _hold(self, path: Path) -> None:
        """Anchor the file, or see that it is still the one that was anchored: SQLite would make an empty one in its place."""
        if self._anchor is None:
            self._anchor = anchor(path)
        found = _file(path)
        if self._file is not None and found != self._file:
            raise StoreError(
                f"ledger {self._address.label} was {'replaced' if found else 'removed'} while it was in use",
                hint="run the same command again: it goes on if the file was put back, and else begins anew",
            )
        self._file = found

    def _reach(self, session: Session) -> None:
        """Connect to the server, which was there when the ledger was opened: wait for it as for another writer's lock.

        It may be started again while a probe runs for minutes, and what that found is worth the wait.
        """
        deadline = time.monotonic() + BUSY_TIMEOUT_MS / 1000
        while True:
            try:
                session.connection()
                return
            except OperationalError:
                if time.monotonic() >= deadline:
                    raise
            time.sleep(_RECONNECT_S)

    def _locked(self, session: Session, search_id: str) -> SearchRow:
        # SQLite has no row locks and needs none: the whole transaction holds the write lock.
        return self._known(session.get(SearchRow, search_id, with_for_update=True), search_id)

    def _renewed(self, session: Session, search_id: str, owner: str, lease_s: float) -> bool:
        """Whether the search is the owner's; it runs then, also if somebody thought that its process was dead."""
        unfinished = (SearchState.RUNNING.value, SearchState.INTERRUPTED.value)
        change = update(SearchRow).where(
            SearchRow.id == search_id, SearchRow.owner == clean(owner), SearchRow.state.in_(unfinished)
        )
        values = {
            "state": SearchState.RUNNING.value,
            "finished": None,
            "message": "",
            "lease_until": self._lease_end(session, lease_s),
        }
        done = session.execute(change.values(values).execution_options(synchronize_session=False))
        return cast("CursorResult[Any]", done).rowcount > 0

    def _lease_end(self, session: Session, lease_s: float) -> datetime:
        return self._now(session) + min(timedelta(seconds=lease_s), LONGEST_LEASE)

    def _check_owner(self, row: SearchRow, owner: str) -> None:
        if row.owner != clean(owner):
            raise TakenOver(
                f"search {row.id} is being gone on with by {owner_words(row.owner)}: this one was not heard of for too long",
                hint="what it measured is kept; run the same command again when the other has ended",
            )


def _file(path: Path) -> tuple[int, int] | None:
    """What tells a file from another one of its name; None if there is none."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


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
        raise StoreError(f"search {search_id} cannot end as {state.value!r} {said}", hint=LIST)
