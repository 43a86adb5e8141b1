"""What the ledger keeps of earlier searches, and what can be said of it."""

from typing import TYPE_CHECKING

from autotune.arguments import count
from autotune.errors import UsageError
from autotune.ledger import place_of
from autotune.model import Explanation, ProbeResult, SearchRecord
from autotune.storage.store import Store

if TYPE_CHECKING:
    from autotune.report.page.view import View


def searches(storage: str | None, limit: int) -> tuple[SearchRecord, ...]:
    """See ``api.searches``."""
    with Store.open(place_of(storage), create=False) as store:
        return store.searches(count("limit", limit))


def show(search_id: str, storage: str | None) -> tuple[SearchRecord, tuple[ProbeResult, ...]]:
    """See ``api.show``."""
    with Store.open(place_of(storage), create=False) as store:
        record = store.get(search_id)
        return record, store.probes(record.id)


def explain(search_id: str | None, batch_size: int | None, storage: str | None) -> Explanation:
    """See ``api.explain``."""
    from autotune.report.explain import explain as explain_search

    size = None if batch_size is None else count("batch", batch_size)
    with Store.open(place_of(storage), create=False) as store:
        if search_id is None:
            summaries, _ = store.summaries(None)
            answered = next((one.id for one in summaries if one.max_batch is not None), None)
            if answered is None:
                raise UsageError(
                    "the ledger holds no search with an answer",
                    hint="begin with: autotune search model.py; or name one that is listed by: autotune runs ls",
                )
            search_id = answered
        record = store.get(search_id)
        return explain_search(record, store.evidence(record), size)


def report(search_id: str | None, storage: str | None) -> "View":
    """See ``api.report``."""
    from autotune.report.page.build import build_view

    with Store.open(place_of(storage), create=False) as store:
        newest = store.searches(1) if search_id is None else (store.get(search_id),)
        if not newest:
            raise UsageError("the ledger holds no search", hint="begin with: autotune search model.py")
        (record,) = newest
        return build_view(record, store.evidence(record))
