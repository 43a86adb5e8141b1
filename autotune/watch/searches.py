"""Searches that run now, by the ledger: each keeps a lease there, or is a process that can be seen."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from autotune import ledger
from autotune.errors import AutotuneError
from autotune.masked import without_secrets
from autotune.model import SearchSummary, owner_words
from autotune.probe.device_lock import printable
from autotune.watch.snapshot import Search

_EVERY_S = 5.0
"""A ledger is asked no more often: it may be a server, and is opened anew."""
_PATIENCE_S = 3.0
"""An answer is waited for so long; a server that is away may take a minute to be given up."""
_LIMIT = 200


@dataclass(frozen=True, slots=True)
class Running:
    """What a ledger said last."""

    searches: tuple[Search, ...] = ()
    """Newest first."""
    notes: tuple[str, ...] = ()
    """Why it cannot be asked."""


class Searches:
    """One ledger, asked beside the looks, so that none waits for long. Not for several threads at once."""

    def __init__(
        self, storage: str | None, clock: Callable[[], float] = time.monotonic, patience_s: float = _PATIENCE_S
    ) -> None:
        """
        Args:
            storage: the ledger; None = the default one.
            clock: for tests, as the next.
            patience_s: how long an answer is waited for when the ledger was just asked.
        """
        self._storage, self._clock, self._patience_s = storage, clock, patience_s
        self._asked: float | None = None
        self._asking: threading.Thread | None = None
        self._last = Running(notes=("searches are not seen: the ledger has not answered yet",))

    def running(self) -> Running:
        """What the ledger says, or said last."""
        now = self._clock()
        asking = self._asking is not None and self._asking.is_alive()
        if not asking and (self._asked is None or now - self._asked >= _EVERY_S):
            self._asked = now
            self._asking = threading.Thread(target=self._ask, daemon=True)
            self._asking.start()
            self._asking.join(self._patience_s)
        return self._last

    def _ask(self) -> None:
        try:
            self._last = Running(tuple(_search(one) for one in ledger.running(self._storage)))
        except AutotuneError as error:
            self._last = Running(notes=(f"searches are not seen: {printable(error.message)}",))


def _search(one: SearchSummary) -> Search:
    return Search(
        id=printable(one.id)[:_LIMIT],
        workload=printable(without_secrets(one.workload_ref))[:_LIMIT],
        device_name=printable(one.device_name)[:_LIMIT],
        owner=printable(owner_words(one.owner))[:_LIMIT],
        created=one.created,
        probes=one.probes,
        predicted=one.predicted,
    )
