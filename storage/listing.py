"""The list of a ledger's searches. It does without the mapping of rows to objects: loading that takes longer than the list."""

import json
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, Integer, Text, case, column, func, or_, select, table

from autotune.errors import DamagedRow
from autotune.model import Damage, SearchState, SearchSummary
from autotune.storage.column_types import PREFIX, UtcDateTime
from autotune.storage.door import damaged_row, translated
from autotune.storage.opened import Opened

_SUMMARY = {
    "id": Text,
    "state": Text,
    "created": UtcDateTime,
    "finished": UtcDateTime,
    "message": Text,
    "owner": Text,
    "based_on": Text,
    "workload_ref": Text,
    "device_name": Text,
    "budget_bytes": BigInteger,
    "max_batch": Integer,
    "recommended_batch": Integer,
}
"""Columns that are shown as they are, with the types that ``tables`` gives them; no document is among them."""

SEARCHES = table(
    f"{PREFIX}searches",
    *(column(name, kind) for name, kind in _SUMMARY.items()),
    column("lease_until", UtcDateTime),
    column("plan", Text),
)
PROBES = table(f"{PREFIX}probes", column("search_id", Text))
"""The same two tables as in ``tables``, as far as a list needs them."""

_OPTIONAL = frozenset({"finished", "based_on", "max_batch", "recommended_batch"})
_INSTANTS = frozenset({"created", "finished"})
_NUMBERS = frozenset({"budget_bytes", "max_batch", "recommended_batch"})
_NO_BUCKET = '%"length_bucket": null%'
_PREDICTED = '%"predicted": true%'
"""The one is in the document of nearly every plan, the other in few: only those that differ are read."""


def summary_from_row(values: Any, probes: int) -> SearchSummary:
    """Read the columns of a search, by name; ``plan`` is its document where that may say what a list tells, else None.

    Raises:
        DamagedRow: one of them is damaged; names the table, the id and the field.
    """
    checked = {name: values[name] for name in _SUMMARY}
    name = repr(checked["id"])
    for field, value in checked.items():
        kind = datetime if field in _INSTANTS else int if field in _NUMBERS else str
        if not isinstance(value, kind) and not (value is None and field in _OPTIONAL):
            raise damaged_row(SEARCHES.name, name, str(checked["id"]), f"{field}: {value!r} is no {kind.__name__}")
    try:
        checked["state"] = SearchState(checked["state"])
    except ValueError as error:
        raise damaged_row(SEARCHES.name, name, str(checked["id"]), f"state: {error}") from error
    asked = _asked(values["plan"])
    length = asked.get("length_bucket")
    return SearchSummary(
        **checked,
        probes=probes,
        length_bucket=length if isinstance(length, int) else None,
        predicted=asked.get("predicted") is True,
    )


def _asked(plan: object) -> dict[str, object]:
    """What a plan's document says. One that cannot be read says nothing here; ``get`` tells of it."""
    try:
        found = json.loads(plan) if isinstance(plan, str) else None
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


class Listing(Opened):
    """One open ledger, to look at."""

    def summaries(self, limit: int | None = 50) -> tuple[tuple[SearchSummary, ...], tuple[Damage, ...]]:
        """Return at most ``limit`` searches (None = all), newest first, and of those the ones that cannot be read.

        Only what is in columns of its own is looked at: damage to a document is found by who reads it.
        """
        here = SEARCHES.c
        told = or_(here.plan.not_like(_NO_BUCKET), here.plan.like(_PREDICTED))
        plan = case((told, here.plan)).label("plan")
        query = select(*(here[name] for name in _SUMMARY), here.lease_until, plan)
        query = query.order_by(here.created.desc(), here.id.desc())
        read: list[SearchSummary] = []
        damaged: list[Damage] = []
        with translated(self._address), self._engine.begin() as connection:
            rows = connection.execute(query if limit is None else query.limit(max(limit, 0))).mappings().all()
            counts = select(PROBES.c.search_id, func.count()).group_by(PROBES.c.search_id)
            if limit is not None:
                # SQLite lets any type into any column; what is no text is told as damaged below
                counts = counts.where(PROBES.c.search_id.in_([row["id"] for row in rows if isinstance(row["id"], str)]))
            probes: dict[str, int] = {id_: count for id_, count in connection.execute(counts)}
            for row in rows:
                try:
                    summary = summary_from_row(row, probes.get(row["id"], 0))
                except DamagedRow as error:
                    damaged.append(Damage(search_id=str(row["id"]), why=error.message))
                    continue
                if summary.state is SearchState.RUNNING:
                    why = self._why(connection, summary.owner, row["lease_until"])
                    summary = replace(summary, state=SearchState.INTERRUPTED, message=why) if why else summary
                read.append(summary)
        return tuple(read), tuple(damaged)
