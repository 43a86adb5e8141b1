"""What is asked of a ledger: frozen values out, each call a transaction of its own."""

import logging
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice, takewhile
from typing import Any, TypeVar

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session

from autotune.errors import DamagedRow, StoreError, UsageError
from autotune.model import ProbeResult, SearchRecord, SearchState
from autotune.storage.convert import clean, probe_from_row, search_from_row
from autotune.storage.door import translated
from autotune.storage.listing import Listing
from autotune.storage.tables import ProbeRow, SearchRow

LIST = "see what is there with `autotune runs ls`"
_NEWEST_FIRST = (SearchRow.created.desc(), SearchRow.id.desc())

_log = logging.getLogger("autotune")

T = TypeVar("T")


class Reader(Listing):
    """One open ledger.

    A search that the ledger calls running and whose process is gone is read as interrupted, whether somebody has
    written that down or not.
    """

    def latest(self, key: str, states: Collection[SearchState]) -> SearchRecord | None:
        """Return the newest search that asked this question and is in one of these states; None if there is none.

        Damaged ones are passed over, and the ``autotune`` logger warned.
        """
        ids = select(SearchRow.id).where(SearchRow.key == key).order_by(*_NEWEST_FIRST)
        with self._reading() as session:
            return next((one for one in self._searches(session, ids) if one.state in states), None)

    def unfinished(self, key: str) -> SearchRecord | None:
        """Return the interrupted search of this question that measured most since its last answer, the newest of equals.

        Confirmations are none. The newest alone will not do: one that was begun beside another, and stopped before its
        first probe, would hide what the other measured.
        """
        ids = select(SearchRow.id).where(SearchRow.key == key).order_by(*_NEWEST_FIRST)
        with self._reading() as session:
            since = takewhile(lambda one: one.state is not SearchState.ANSWERED, self._searches(session, ids))
            found = [one for one in since if one.state is SearchState.INTERRUPTED and not one.based_on]
            return max(found, key=lambda one: self._count(session, one.id), default=None)

    def _count(self, session: Session, search_id: str) -> int:
        return session.scalar(select(func.count()).where(ProbeRow.search_id == search_id)) or 0

    def latest_of(self, workload_ref: str, wanted: Callable[[SearchRecord], bool]) -> SearchRecord | None:
        """Return the newest search of a workload of this name that is wanted; None if there is none."""
        ids = select(SearchRow.id).where(SearchRow.workload_ref == clean(workload_ref)).order_by(*_NEWEST_FIRST)
        with self._reading() as session:
            found = self._searches(session, ids)
            return next((one for one in found if wanted(one)), None)

    def get(self, search_id: str) -> SearchRecord:
        """Return a search by its id, or by as much of its beginning as no other search shares.

        Raises:
            UsageError: no search or several begin like this.
            DamagedRow: it cannot be read.
        """
        with self._reading() as session:
            id_ = self._resolve(session, search_id)
            return self._as_it_is(session, search_from_row(self._known(session.get(SearchRow, id_), id_)))

    def resolve(self, search_id: str) -> str:
        """Return the whole id of a search that may be damaged; see ``get``."""
        with self._reading() as session:
            return self._resolve(session, search_id)

    def _resolve(self, session: Session, search_id: str) -> str:
        if not isinstance(search_id, str):
            raise UsageError(f"{search_id!r} is no id of a search", hint=LIST)
        # Not LIKE: it has wildcards, and ignores case in one database and not in the other.
        begins = func.substr(SearchRow.id, 1, len(search_id)) == search_id
        ids = session.scalars(select(SearchRow.id).where(begins).order_by(SearchRow.id)).all() if search_id else []
        if search_id in ids:
            return search_id
        if len(ids) > 1:
            shown = ", ".join(ids[:5]) + (", …" if len(ids) > 5 else "")
            raise UsageError(f"{len(ids)} searches begin with {search_id!r}: {shown}", hint=LIST)
        if not ids:
            raise UsageError(self._missing(search_id), hint=LIST)
        return ids[0]

    def searches(self, limit: int = 50) -> tuple[SearchRecord, ...]:
        """Return at most ``limit`` searches, newest first. Damaged ones are left out, and the logger warned."""
        with self._reading() as session:
            ids = select(SearchRow.id).order_by(*_NEWEST_FIRST)
            return tuple(islice(self._searches(session, ids), max(limit, 0)))

    def probes(self, search_id: str) -> tuple[ProbeResult, ...]:
        """Return the probes of a search in the order they were added; none for a search that has none.

        Raises:
            DamagedRow: one of them cannot be read.
            StoreError: there is no such search.
        """
        with self._reading() as session:
            self._known(session.scalar(select(SearchRow.id).where(SearchRow.id == search_id)), search_id)
            return self._probes(session, search_id)

    def evidence(self, record: SearchRecord) -> tuple[ProbeResult, ...]:
        """Return all that a search rests on: the probes of the one that it confirms, and its own.

        That one may not be here: a search can be exported without it.

        Raises:
            DamagedRow: one of them cannot be read.
        """
        with self._reading() as session:
            confirmed = self._probes(session, record.based_on) if record.based_on else ()
            return (*confirmed, *self._probes(session, record.id))

    def _probes(self, session: Session, search_id: str) -> tuple[ProbeResult, ...]:
        query = select(ProbeRow).where(ProbeRow.search_id == search_id).order_by(ProbeRow.number)
        return tuple(probe_from_row(row) for row in session.scalars(query))

    @contextmanager
    def _reading(self) -> Iterator[Session]:
        with translated(self._address), Session(self._engine) as session, session.begin():
            yield session

    def _searches(self, session: Session, ids: Select[Any]) -> Iterator[SearchRecord]:
        """Those that can be read, each fetched when it is asked for: they have long documents."""
        for id_ in session.scalars(ids).all():
            row = session.get(SearchRow, id_)
            if row is None:
                continue  # removed meanwhile
            try:
                record = search_from_row(row)
            except DamagedRow as error:
                _log.warning("%s; it is passed over", error.message)
                continue
            yield self._as_it_is(session, record)

    def _as_it_is(self, session: Session, record: SearchRecord) -> SearchRecord:
        """The record, and if its process is gone, then as interrupted."""
        if record.state is not SearchState.RUNNING:
            return record
        why = self._why(session, record.owner, record.lease_until)
        return replace(record, state=SearchState.INTERRUPTED, message=why) if why else record

    def _known(self, row: T | None, search_id: str) -> T:
        if row is None:
            raise StoreError(self._missing(search_id), hint=LIST)
        return row

    def _missing(self, search_id: str) -> str:
        return f"ledger {self._address.label} has no search {search_id!r}"
