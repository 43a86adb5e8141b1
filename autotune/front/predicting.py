"""How much several devices would hold, found out on one: one process trains as one rank of N, the others are stood in for.

Each way of training together is a search of its own in the ledger, marked as predicted. Where the host has as many
devices, the ranks run as well.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from autotune.arguments import flag
from autotune.errors import EnvironmentTrouble, NothingFits, TimeRanOut, UsageError, WorkloadError
from autotune.front import searching
from autotune.front.communicators import communicators
from autotune.front.given import refuse_unplanned
from autotune.front.laboratory import budget_of, refuse_inside, turns_of
from autotune.front.observer import listening
from autotune.ledger import place_of
from autotune.model import Budget, Communicators, Machine, Parallel, Plan, Predicted, PredictedWay, WorkloadInfo
from autotune.planning import with_own_settings
from autotune.ports import SearchObserver
from autotune.ranking import MOST, refuse_workload
from autotune.session import Session

WAYS = (Parallel.DDP, Parallel.FSDP, Parallel.ZERO)
"""What is compared where no way is asked for; DDP is also what a training of ranks has that autotune does not wrap."""
_SHARING = frozenset({Parallel.FSDP, Parallel.ZERO})
"""Ways in which more ranks leave less to each."""
_SAYS_NOTHING = (EnvironmentTrouble, TimeRanOut, UsageError)
"""What keeps more from being found out; the prediction stands."""
_DOUBLINGS = 5
"""How often more ranks are tried where nothing fits: up to 32 times as many."""


def predict(
    plan: Plan,
    storage: str | os.PathLike[str] | None,
    fresh: bool,
    observer: SearchObserver | None,
    *,
    verify: bool | None,
) -> Predicted:
    """See ``api.predict``."""
    refuse_unplanned(plan)
    observer, fresh = listening(observer), flag("fresh", fresh)
    verify = None if verify is None else flag("verify", verify)
    if plan.ranks == 1:
        raise UsageError(
            "one rank needs no prediction, and --ranks is 1",
            hint="say how many devices you ask about: --ranks 8; or search here: autotune max-batch",
        )
    asked = plan.settings.parallel
    if asked is Parallel.TENSOR:
        raise UsageError(
            "tensor parallel cannot be predicted: what its ranks compute from each other's values would mean nothing",
            hint=f"compare the other ways: leave out --parallel; or run it where the devices are: --ranks {plan.ranks}",
        )
    started = time.monotonic()  # the time budget is that of all of it
    ways = WAYS if asked is Parallel.DEFAULT else (asked,)
    with _standing_in(plan, storage, observer, started) as stand:
        found = [_predicted(stand, way, fresh, observer) for way in ways]
    _raise_what_is_no_answer(found)
    found = [_with_enough(stand.plan, one, storage, observer, started) for one in found]
    if verify is None:
        verify = len(_devices(stand.machine)) >= plan.ranks
    if verify:
        found = [_verified(plan, one, storage, fresh, observer, started) for one in found]
    return Predicted(
        plan=stand.plan,
        workload=stand.workload,
        machine=stand.machine,
        budget=stand.budget,
        communicators=stand.communicators,
        ways=tuple(found),
    )


@dataclass(frozen=True, slots=True)
class _Stand:
    plan: Plan
    """With the workload's own settings, and marked as predicted."""
    workload: WorkloadInfo
    machine: Machine
    budget: Budget
    communicators: Communicators
    session: Callable[[Plan], Session]


@contextmanager
def _standing_in(
    plan: Plan, storage: str | os.PathLike[str] | None, observer: SearchObserver, started: float
) -> Iterator[_Stand]:
    """The process that stands in for all ranks, its ledger and its budget.

    ``started``: instant on ``time.monotonic`` from which the time budget counts.
    """
    refuse_inside()
    from autotune.probe.launcher import Launcher
    from autotune.storage.store import Store

    one, address = replace(plan, ranks=1), place_of(storage)
    with ExitStack() as stack:
        turns = turns_of(one, observer.note, started)
        launcher = Launcher(
            plan.source,
            timeout_s=plan.timeout_s,
            seed=plan.seed,
            say=observer.note,
            turns=turns,
            ranks=plan.ranks,
            stands_in=True,
        )
        stack.enter_context(launcher).preload(plan.device)
        store = stack.enter_context(Store.open(address))
        workload, machine = launcher.describe(plan.device, plan.multiple_of)
        refuse_workload(workload, plan.ranks)
        held = communicators(store, machine, plan.ranks)
        launcher.communicators_bytes = held.size_bytes
        marked = replace(plan, predicted=True, communicators_bytes=held.size_bytes)
        with launcher.turn():
            budget = budget_of(one, machine, 0, workload.device_used_bytes)
        observer.found(workload, machine, budget)

        def session(plan: Plan) -> Session:
            return Session(plan, store, launcher, observer, workload, machine, budget, started)

        yield _Stand(with_own_settings(marked, workload), workload, machine, budget, held, session)


def _in_this_way(plan: Plan, way: Parallel) -> Plan:
    return replace(plan, settings=replace(plan.settings, parallel=way))


def _predicted(stand: _Stand, way: Parallel, fresh: bool, observer: SearchObserver) -> PredictedWay:
    observer.note(f"{way}: one process stands in for {stand.plan.ranks} ranks")
    try:
        return PredictedWay(parallel=way, result=stand.session(_in_this_way(stand.plan, way)).run(fresh=fresh))
    except (NothingFits, WorkloadError, TimeRanOut) as error:
        return PredictedWay(parallel=way, result=None, error=error)


def _raise_what_is_no_answer(found: Sequence[PredictedWay]) -> None:
    """That a model does not train in one of several ways is an answer; that it trains in none is none.

    Raises:
        WorkloadError, TimeRanOut: no way has an answer, and not because nothing fits.
    """
    errors = [one.error for one in found if one.error is not None]
    if len(errors) == len(found) and not any(isinstance(error, NothingFits) for error in errors):
        raise errors[0]


def _with_enough(
    plan: Plan, found: PredictedWay, storage: str | os.PathLike[str] | None, observer: SearchObserver, started: float
) -> PredictedWay:
    """Where not even the smallest batch fits and ranks share: with how many it would, doubling them."""
    if not isinstance(found.error, NothingFits) or found.parallel not in _SHARING:
        return found
    for doubling in range(1, _DOUBLINGS + 1):
        ranks = plan.ranks << doubling
        if ranks > MOST:
            break
        smallest = replace(
            _in_this_way(plan, found.parallel),
            ranks=ranks,
            world=ranks,
            start_batch=None,
            max_batch=plan.multiple_of,
        )
        try:
            _refuse_without_time(plan, started)
            with _standing_in(smallest, storage, observer, started) as stand:
                stand.session(stand.plan).run(fresh=False)
        except NothingFits:
            continue
        except (WorkloadError, *_SAYS_NOTHING) as error:  # such as more ranks than parameters
            observer.note(f"{found.parallel}: {ranks} ranks cannot be asked about: {error.message}")
            break
        return replace(found, enough=ranks)
    return found


def _refuse_without_time(plan: Plan, started: float) -> None:
    """Before processes are started that could run no probe.

    Raises:
        TimeRanOut: the time budget has ended.
    """
    if plan.time_budget_s is not None and time.monotonic() - started >= plan.time_budget_s:
        raise TimeRanOut(
            f"the time budget of {plan.time_budget_s:g} s ended before",
            hint="run the same command again with a larger --time-budget: what was measured is kept",
        )


def _devices(machine: Machine) -> Sequence[object]:
    """The devices of this host that ranks would run on; none on the CPU, where any number of processes can be started."""
    if machine.device != "cuda":
        return ()
    from autotune.probe import nvml
    from autotune.probe.visible import visible

    cards = nvml.cards()
    return (visible(cards, os.environ) if cards else None) or ()


def _as_asked(plan: Plan, way: Parallel) -> Plan:
    """The search in which the ranks run, as a person would ask for it, so that the ledger knows its answer then.

    Where no way was asked for, ``ddp`` is what probes do as well for a training that wraps its model by itself.
    """
    return plan if way is Parallel.DDP and plan.settings.parallel is Parallel.DEFAULT else _in_this_way(plan, way)


def _verified(
    plan: Plan,
    found: PredictedWay,
    storage: str | os.PathLike[str] | None,
    fresh: bool,
    observer: SearchObserver,
    started: float,
) -> PredictedWay:
    """The same with what the ranks say when they run, first of all at the predicted batch."""
    if found.result is None:
        return found
    guess = found.result.answer.max_batch
    try:
        _refuse_without_time(plan, started)
        observer.note(f"{found.parallel}: running all {plan.ranks} ranks, at the predicted batch first")
        result = searching.search(
            _as_asked(plan, found.parallel),
            storage,
            fresh,
            observer,
            {},
            trains_here=False,
            started=started,
            guess=guess,
        )
    except (NothingFits, WorkloadError) as error:
        return replace(found, real_error=error)
    except _SAYS_NOTHING as error:
        observer.note(f"{found.parallel}: the ranks could not be run: {error.message}")
        return found
    return replace(found, real=result)
