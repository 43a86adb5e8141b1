"""What people do with a ledger beside searching: list, compare, remove, export, import."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from autotune.arguments import path
from autotune.errors import DamagedRow, StoreError, UsageError
from autotune.model import Damage, SearchState, SearchSummary, owner_words

if TYPE_CHECKING:
    from autotune.report.differences import Difference
    from autotune.storage.store import Store

STORAGE_VARIABLE = "AUTOTUNE_STORAGE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """Which searches are to be removed, and which are kept though they were meant."""

    search_ids: tuple[str, ...]
    probes: int
    """How many probes go with them."""
    kept: tuple[tuple[str, str], ...]
    """(id, why it is kept)."""


def place_of(storage: object) -> str:
    """The ledger's path or URL; without one ``AUTOTUNE_STORAGE``, else a file in the platform's data directory.

    Raises:
        UsageError: it is neither.
    """
    if storage is not None and storage != "":
        return path("storage", storage)
    from platformdirs import user_data_path

    return os.environ.get(STORAGE_VARIABLE) or str(user_data_path("autotune") / "ledger.sqlite3")


def runs(storage: str | None = None, limit: int = 50) -> tuple[tuple[SearchSummary, ...], tuple[Damage, ...]]:
    """The ledger's searches in short, newest first, and those of them that cannot be read.

    Raises:
        StoreError: the ledger cannot be read.
        UsageError: there is no ledger.
    """
    from autotune.storage.listing import Listing  # all that this needs, in half the time of the whole store

    with Listing.open(place_of(storage), create=False) as ledger:
        return ledger.summaries(limit)


def running(storage: str | None = None, limit: int = 200) -> tuple[SearchSummary, ...]:
    """Those of the newest searches that run now, newest first, for who only looks: nothing is made, nor brought up to date.

    Args:
        storage: the ledger; None = the default one, which has none before the first search.
        limit: how many of the newest are looked through.

    Raises:
        StoreError: the ledger cannot be read, or was written by another version of autotune.
        UsageError: there is no ledger where one was named.
    """
    from autotune.storage.listing import Listing
    from autotune.storage.look import look

    address = place_of(storage)
    found = look(address)
    if found.schema is None and storage:
        raise UsageError(f"no ledger at {found.label}", hint="look at --storage; a search makes one")
    if found.schema is None:
        return ()
    if found.searches is None:
        raise StoreError(
            f"ledger {found.label} was written by another version of autotune",
            hint="autotune runs ls brings an older one up to date",
        )
    with Listing.open(address, create=False) as ledger:
        summaries, _ = ledger.summaries(limit)
    return tuple(one for one in summaries if one.state is SearchState.RUNNING)


def compare(first: str, second: str, storage: str | None = None) -> "tuple[Difference, ...]":
    """What differs between two searches: plan, workload, machine, budget, then how they ended and what they found.

    Raises:
        StoreError: the ledger, or one of them, cannot be read.
        UsageError: there is no ledger, or no such search in it.
    """
    from autotune.report.differences import answer_differences, differences

    with _open(storage) as store:
        records = [store.get(search_id) for search_id in (first, second)]
        probes = [store.evidence(record) for record in records]
    return (*differences(*records), *answer_differences(records[0], records[1], probes[0], probes[1]))


def to_remove(
    search_ids: Sequence[str] = (),
    *,
    older_than_s: float | None = None,
    keep: int | None = None,
    storage: str | None = None,
) -> Removal:
    """Find what may be removed; nothing is changed.

    Args:
        search_ids: searches by name, also damaged ones; a unique beginning of the id is enough.
        older_than_s: in place of names, those that ended longer ago.
        keep: in place of names, those beyond so many newest; with ``older_than_s`` only what is both.
        storage: the ledger.

    Running searches are never removed, and one that others confirm only together with those.

    Raises:
        StoreError: the ledger cannot be read.
        UsageError: there is no ledger or no such search; one that was named runs, or is confirmed by others; nothing
            was asked for, or two things.
    """
    if bool(search_ids) == (older_than_s is not None or keep is not None):
        raise UsageError(
            "name searches or say which by age or number"
            if not search_ids
            else "searches are named and chosen as well",
            hint="autotune runs rm ID, or autotune runs rm --older-than 30d, or autotune runs rm --keep 100",
        )
    with _open(storage) as store:
        summaries, _ = store.summaries(None)
        if search_ids:
            return _named(store, search_ids, summaries)
    horizon = None if older_than_s is None else datetime.now(UTC) - timedelta(seconds=older_than_s)
    meant = [
        one
        for place, one in enumerate(summaries)
        if (horizon is None or (one.finished or one.created) < horizon) and (keep is None or place >= keep)
    ]
    return _all_but_needed(meant, summaries)


def remove(removal: Removal, storage: str | None = None) -> tuple[str, ...]:
    """Remove searches with all their probes; returns the ids of those removed. One that runs by now stays.

    Raises:
        StoreError: the ledger cannot be written.
        UsageError: there is no ledger.
    """
    with _open(storage) as store:
        return store.remove(removal.search_ids)


def export_runs(search_ids: Sequence[str] = (), storage: str | None = None) -> Iterator[str]:
    """Searches with their probes, one line of JSON each: those named, in that order, or all, oldest first.

    Raises:
        StoreError: the ledger cannot be read; at the end, that some of all searches could not be.
        UsageError: there is no ledger, or no such search in it.
    """
    from autotune.storage.lines import to_line

    with _open(storage) as store:
        if search_ids:
            for search_id in [store.resolve(one) for one in search_ids]:
                yield to_line(store.get(search_id), store.probes(search_id))
            return
        summaries, damaged = store.summaries(None)
        failed = [one.why for one in damaged]
        for summary in reversed(summaries):
            try:
                line = to_line(store.get(summary.id), store.probes(summary.id))
            except DamagedRow as error:
                failed.append(error.message)
                continue
            yield line
        if failed:
            raise StoreError(
                f"{len(failed)} of {len(summaries) + len(damaged)} searches cannot be read and were left out",
                detail="\n".join(failed),
                hint="drop them with `autotune runs rm ID`, or name the others: autotune runs export ID ...",
            )


def import_runs(lines: Iterable[str], storage: str | None = None) -> tuple[int, int]:
    """Add exported searches to a ledger, which is made where it is missing.

    Returns:
        (how many were added, how many were there already).

    Raises:
        StoreError: a line is no search; those before it are in the ledger, and the same command goes on.
    """
    from autotune.storage.lines import from_line
    from autotune.storage.store import Store

    added = there = 0
    with Store.open(place_of(storage)) as store:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                record, probes = from_line(line)
            except StoreError as error:
                raise StoreError(f"line {number} cannot be imported: {error.message}", hint=error.hint) from error
            if record.state is SearchState.RUNNING:
                message = "it was running when it was exported"
                record = replace(record, state=SearchState.INTERRUPTED, message=message, lease_until=None)
            new = store.add(record, probes)
            added, there = added + new, there + (not new)
    return added, there


def _open(storage: str | None) -> "Store":
    from autotune.storage.store import Store

    return Store.open(place_of(storage), create=False)


def _named(store: "Store", search_ids: Sequence[str], summaries: Sequence[SearchSummary]) -> Removal:
    ids = tuple(dict.fromkeys(store.resolve(one) for one in search_ids))
    known = {one.id: one for one in summaries}
    for id_ in ids:
        one = known.get(id_)
        if one is not None and one.state is SearchState.RUNNING:
            raise UsageError(
                f"search {id_} is running ({owner_words(one.owner)})", hint="stop it first; it can be continued later"
            )
        others = [other.id for other in summaries if other.based_on == id_ and other.id not in ids]
        if others:
            raise UsageError(
                f"search {id_} is what {', '.join(others)} confirmed",
                hint=f"remove them together: autotune runs rm {' '.join((*ids, *others))}",
            )
    return Removal(search_ids=ids, probes=sum(known[id_].probes for id_ in ids if id_ in known), kept=())


def _all_but_needed(meant: Sequence[SearchSummary], summaries: Sequence[SearchSummary]) -> Removal:
    running = {one.id for one in meant if one.state is SearchState.RUNNING}
    going = {one.id for one in meant} - running
    needed = {one.based_on: one.id for one in summaries if one.based_on is not None and one.id not in going}
    kept = [(one.id, "it is running") for one in meant if one.id in running]
    kept += [(one.id, f"{needed[one.id]} confirmed it") for one in meant if one.id in needed and one.id in going]
    removed = [one for one in meant if one.id in going and one.id not in needed]
    return Removal(
        search_ids=tuple(one.id for one in removed), probes=sum(one.probes for one in removed), kept=tuple(kept)
    )
