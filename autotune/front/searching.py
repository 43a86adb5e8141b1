"""A planned search: its processes, its ledger and its budget are opened, and it runs in them."""

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

from autotune.arguments import flag
from autotune.errors import EnvironmentTrouble, NothingFits, TimeRanOut, UsageError, WorkloadError
from autotune.executors.asked import Where
from autotune.front.buckets import search_buckets as by_length
from autotune.front.given import refuse_unplanned
from autotune.front.laboratory import budget_of, laboratory, refuse_inside, turns_of, workers_of
from autotune.front.observer import listening
from autotune.ledger import place_of
from autotune.model import Bucketed, Budget, KindFailed, Machine, Plan, SearchResult, WorkloadInfo
from autotune.planning import length_buckets, with_own_settings
from autotune.ports import SearchObserver
from autotune.ranking import refuse_without_plan, refuse_workload
from autotune.session import Session
from autotune.units import format_seconds

_WORTH_TELLING_S = 1.0


def search(
    plan: Plan,
    storage: str | os.PathLike[str] | None,
    fresh: bool,
    observer: SearchObserver | None,
    where: Where,
    *,
    trains_here: bool,
    started: float | None = None,
    guess: int | None = None,
) -> SearchResult:
    """See ``api.search``.

    Args:
        plan, storage, fresh, observer, where: as there.
        trains_here: the caller goes on to train, in this process.
        started: instant on ``time.monotonic`` from which the time budget counts; None = now.
        guess: size to begin with; see ``Session``.
    """
    observer, fresh = listening(observer), flag("fresh", fresh)
    with _opened(plan, storage, observer, where, trains_here=trains_here, started=started, guess=guess) as opened:
        return opened.session(opened.plan, opened.workload).run(fresh=fresh)


def search_kinds(
    plan: Plan, storage: str | None, fresh: bool, observer: SearchObserver | None, where: Where
) -> tuple[SearchResult, tuple[SearchResult | KindFailed, ...]]:
    """See ``api.search_kinds``."""
    observer, fresh = listening(observer), flag("fresh", fresh)
    with _opened(plan, storage, observer, where, trains_here=False) as opened:
        first = opened.session(opened.plan, opened.workload).run(fresh=fresh)
        others: list[SearchResult | KindFailed] = []
        for machine, session in opened.other_kinds():
            try:
                others.append(session().run(fresh=fresh))
            except (NothingFits, WorkloadError, TimeRanOut, EnvironmentTrouble, UsageError) as error:
                # also a budget that this kind does not have: the answer of the first is not lost for that
                others.append(KindFailed(machine=machine, error=error))
        return first, tuple(others)


def search_buckets(
    plan: Plan,
    buckets: Sequence[int],
    storage: str | os.PathLike[str] | None,
    fresh: bool,
    observer: SearchObserver | None,
    where: Where,
    *,
    trains_here: bool,
) -> Bucketed:
    """See ``api.search_buckets``; ``trains_here``: the caller goes on to train, in this process."""
    refuse_unplanned(plan)
    observer, fresh = listening(observer), flag("fresh", fresh)
    lengths = length_buckets(buckets, plan)
    with _opened(plan, storage, observer, where, lengths, trains_here=trains_here) as opened:
        return by_length(opened.plan, opened.workload, opened.machine, opened.session, observer, fresh=fresh)


@dataclass(frozen=True, slots=True)
class _Opened:
    plan: Plan
    """With the workload's own settings."""
    workload: WorkloadInfo
    machine: Machine
    session: Callable[[Plan, WorkloadInfo], Session]
    """Opens the search of this plan, or of a part of it."""
    other_kinds: Callable[[], Iterator[tuple[Machine, Callable[[], Session]]]]
    """Each other kind of machine among the workers, one after another, and what opens the search of this plan on it."""


@contextmanager
def _opened(
    plan: Plan,
    storage: str | os.PathLike[str] | None,
    observer: SearchObserver,
    where: Where,
    buckets: Sequence[int] = (),
    *,
    trains_here: bool,
    started: float | None = None,
    guess: int | None = None,
) -> Iterator[_Opened]:
    """The processes, the ledger and the budget of a search.

    ``trains_here``: the calling process goes on to train, and on the CPU what it holds is missing then.
    ``started``, ``guess``: as in ``search``.
    """
    refuse_inside()
    refuse_unplanned(plan)
    from autotune.probe.host import own_data_bytes

    started, address = time.monotonic() if started is None else started, place_of(storage)
    with ExitStack() as stack:
        turns = turns_of(plan, observer.note, started)
        workers = workers_of(plan, where, observer.note, started)
        launcher = stack.enter_context(workers or laboratory(plan, observer.note, turns))
        launcher.preload(plan.device)
        # Processes work beside this one from here on. In what it holds, what a search brings in later counts as well.
        import autotune.report.advice
        import autotune.search.allocators
        import autotune.search.confirm
        import autotune.search.evaluation  # noqa: F401
        from autotune.storage.store import Store

        store = stack.enter_context(Store.open(address))
        one = () if plan.length_bucket is None else (plan.length_bucket,)  # a recommendation for one is searched anew
        workload, machine = launcher.describe(plan.device, plan.multiple_of, buckets or one)
        refuse_workload(workload, plan.ranks)
        refuse_without_plan(workload, plan.settings.parallel)
        if one:
            workload = workload.within(workload.buckets[0])
        plan = with_own_settings(plan, workload)
        held = 0
        if trains_here:
            imported = 0 if "torch._dynamo" in sys.modules else workload.step_imports_bytes
            held = max(0, own_data_bytes() + imported - workload.process_bytes)
        with launcher.turn():  # else another search's probe would count as what others hold
            budget = workers.budget(held) if workers else budget_of(plan, machine, held, workload.device_used_bytes)
        observer.found(workload, machine, budget)

        def session(plan: Plan, workload: WorkloadInfo) -> Session:
            return Session(plan, store, launcher, observer, workload, machine, budget, started, guess)

        def other_kinds() -> Iterator[tuple[Machine, Callable[[], Session]]]:
            while workers is not None and workers.other_kinds:
                workload, machine = workers.turn_to(workers.other_kinds[0])
                yield machine, partial(of_kind, workload, machine, partial(workers.budget, held))

        def of_kind(workload: WorkloadInfo, machine: Machine, budget_of_kind: Callable[[], Budget]) -> Session:
            budget = budget_of_kind()
            observer.found(workload, machine, budget)
            asked = with_own_settings(plan, workload)
            return Session(asked, store, launcher, observer, workload, machine, budget, started)

        yield _Opened(plan, workload, machine, session, other_kinds)
        if turns.waited_s >= _WORTH_TELLING_S:
            observer.note(f"{format_seconds(turns.waited_s)} of the time went by waiting for probes of other searches")
