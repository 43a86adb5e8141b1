"""Searches that run now, by the ledger: each keeps a lease there, or is a process that can be seen."""

import time
from collections.abc import Callable

from autotune import ledger
from autotune.errors import AutotuneError, UsageError
from autotune.masked import without_secrets
from autotune.model import SearchState, SearchSummary, owner_words
from autotune.probe.device_lock import printable
from autotune.watch.snapshot import Search

_EVERY_S = 5.0
"""A ledger is asked no more often: it may be a server, and is opened anew."""
_NEWEST = 200
"""Searches that are looked through."""
_LIMIT = 200


class Searches:
    """What one ledger says; remembered between looks."""

    def __init__(self, storage: str | None, clock: Callable[[], float] = time.monotonic) -> None:
        """
        Args:
            storage: the ledger; None = the default one.
            clock: for tests.
        """
        self._storage, self._clock = storage, clock
        self._asked: float | None = None
        self._found: tuple[tuple[Search, ...], tuple[str, ...]] = (), ()

    def running(self) -> tuple[tuple[Search, ...], tuple[str, ...]]:
        """Searches that run, newest first, and why the ledger cannot be asked, if so."""
        now = self._clock()
        if self._asked is None or now - self._asked >= _EVERY_S:
            self._found, self._asked = self._ask(), now
        return self._found

    def _ask(self) -> tuple[tuple[Search, ...], tuple[str, ...]]:
        try:
            summaries, _ = ledger.runs(storage=self._storage, limit=_NEWEST)
        except UsageError as error:
            if self._storage is None:
                return (), ()  # the ledger that nobody named comes with the first search
            return (), (f"searches are not seen: {error.message}",)
        except AutotuneError as error:
            return (), (f"searches are not seen: {error.message}",)
        return tuple(_search(one) for one in summaries if one.state is SearchState.RUNNING), ()


def _search(one: SearchSummary) -> Search:
    return Search(
        id=printable(one.id)[:_LIMIT],
        workload=printable(without_secrets(one.workload_ref))[:_LIMIT],
        device_name=printable(one.device_name)[:_LIMIT],
        owner=printable(owner_words(one.owner))[:_LIMIT],
        created=one.created,
        probes=one.probes,
    )
