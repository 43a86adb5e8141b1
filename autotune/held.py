"""One search that this process holds in the ledger: kept its own before each probe, recorded into, ended once."""

import math
import time
import uuid
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from autotune.errors import AutotuneError, StoreError, TakenOver
from autotune.model import Answer, Budget, ProbeResult, Question, SearchRecord, SearchState
from autotune.ports import Prober

if TYPE_CHECKING:
    from autotune.storage.store import Store

SLACK_S = 120.0
"""Beyond a probe's own deadline: ending it, writing it down behind other writers, choosing the next question. The lease
is renewed with each result, and before a probe where half of this has passed since."""


class Held:
    """A ``Recorder``; a prober made by ``leased`` starts no probe before the ledger knows that its search goes on.

    Whoever cannot see this process (another host, another container) takes the search for orphaned once the lease is over;
    this one then notices before its next probe, and stops.
    """

    def __init__(self, store: "Store", record: SearchRecord) -> None:
        """Use ``begin`` or ``go_on``."""
        self._store = store
        self._renewed_s = time.monotonic()
        """When the lease was renewed; minus infinity = somebody else has the search."""
        self.record = record

    @classmethod
    def begin(cls, store: "Store", record: SearchRecord) -> "Held":
        """Enter a new search, under an id and an owner of its own.

        Raises:
            StoreError: it could not be written.
        """
        from autotune.storage.owners import at_work, new_owner

        record = replace(record, id=uuid.uuid4().hex[:12], owner=new_owner())
        at_work(record.owner)
        store.begin(record, lease_s=_lease_s(record))
        return cls(store, record)

    @classmethod
    def go_on(cls, store: "Store", record: SearchRecord) -> "Held | None":
        """Take over a search that was interrupted; None if somebody else was faster.

        Raises:
            StoreError: it could not be written.
        """
        from autotune.storage.owners import at_work, done, new_owner

        owner = new_owner()
        at_work(owner)
        if not store.reopen(record.id, owner, former_owner=record.owner, lease_s=_lease_s(record)):
            done(owner)
            return None
        return cls(store, replace(record, owner=owner, state=SearchState.RUNNING))

    def leased(self, prober: Prober) -> Prober:
        """The same prober; before each probe the search is made sure of."""
        return _Leased(self, prober)

    def keep(self) -> None:
        """Make sure of a lease that outlasts the next probe.

        Raises:
            TakenOver: another process has gone on with this search meanwhile.
            StoreError: the ledger cannot be written.
        """
        if time.monotonic() - self._renewed_s > SLACK_S / 2:
            self._store.renew(self.record.id, self.record.owner, lease_s=_lease_s(self.record))
            self._renewed_s = time.monotonic()

    def add(self, result: ProbeResult) -> None:
        """Commit a finished probe, and with it that the search goes on.

        Raises:
            StoreError: it could not be written.
        """
        lease_s = _lease_s(self.record)
        mine = self._store.add_probe(self.record.id, result, owner=self.record.owner, lease_s=lease_s)
        self._renewed_s = time.monotonic() if mine else -math.inf

    def finish(self, state: SearchState, answer: Answer | None, message: str) -> None:
        """Write down how it ended.

        Raises:
            StoreError: it could not be written; whoever reads the ledger sees all the same that nobody runs it any more.
        """
        from autotune.storage.owners import done

        owner, finished = self.record.owner, datetime.now(UTC)
        try:
            self._store.finish(
                self.record.id, owner=owner, state=state, answer=answer, message=message, finished=finished
            )
        finally:
            done(owner)

    def interrupt(self, error: BaseException) -> None:
        """Write down that ``error`` stopped it, if the ledger can still be written; the error itself matters more."""
        from autotune.storage.owners import done

        if isinstance(error, TakenOver):  # its end is the other's to tell
            done(self.record.owner)
            return
        try:
            self.finish(SearchState.INTERRUPTED, None, _why(error))
        except StoreError as second:
            if not isinstance(error, StoreError):
                error.add_note(f"the ledger could not be told, and needs not be: {second.message}")


@dataclass(frozen=True, slots=True)
class _Leased:
    """A prober for one held search."""

    held: Held
    prober: Prober

    def probe(self, question: Question, budget: Budget, reserve_bytes: int) -> ProbeResult:
        """Keep the search, then probe; raises what both raise."""
        self.held.keep()
        return self.prober.probe(question, budget, reserve_bytes)


def _lease_s(record: SearchRecord) -> float:
    """A probe may wait for others on the device before it runs."""
    return record.plan.device_wait_s + record.plan.timeout_s + SLACK_S


def _why(error: BaseException) -> str:
    """For people, who look at the list of searches later."""
    if isinstance(error, AutotuneError):
        return error.message
    if isinstance(error, KeyboardInterrupt):
        return "stopped by SIGINT"
    # A signal carries its name; of an error only its kind is sure to be short and to hold nothing of the user's.
    name = "" if isinstance(error, Exception) else getattr(error, "name", "")
    return f"stopped by {name or type(error).__name__}"
