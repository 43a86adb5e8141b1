"""A recommendation examined: its file read, what it was made for found again, and the gate passed."""

import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Unpack

from autotune.arguments import flag
from autotune.arguments import path as as_path
from autotune.errors import UsageError
from autotune.front.gate import Gate, overridden, plan_to_check
from autotune.front.given import command_of
from autotune.front.laboratory import budget_of, laboratory, refuse_inside, turns_of
from autotune.front.observer import listening
from autotune.ledger import place_of
from autotune.model import Budget, SearchRecord
from autotune.recommended.checked import Checked
from autotune.recommended.file import read_recommendation
from autotune.recommended.given import CheckOptions, refuse_unknown, source_to_check
from autotune.recommended.judging import batch_of
from autotune.report.asked import plan_again
from autotune.session import Session
from autotune.storage.store import Store


def examine(
    path: str | os.PathLike[str],
    workload: str | os.PathLike[str] | Sequence[str] | None = None,
    **options: Unpack[CheckOptions],
) -> Checked:
    """See ``api.examine``."""
    refuse_inside()
    refuse_unknown(options)
    started, file = time.monotonic(), Path(as_path("path", path))
    probing, observer = flag("probe", options.get("probe", True)), listening(options.get("observer"))
    content = read_recommendation(file)
    batch = batch_of(content, options.get("at", "recommended"))
    storage = options.get("storage")
    with ExitStack() as stack:
        store = stack.enter_context(Store.open(place_of(storage)))
        recorded = _recorded(store, content.search_id)
        command = () if workload is None else command_of(workload)
        ref = None if workload is None or command else as_path("workload", workload)
        source, given = source_to_check(content, file, ref, command, recorded, options)
        again = overridden(
            plan_again(content, source, recorded.plan if recorded else None),
            device=options.get("device"),
            memory_limit=options.get("memory_limit"),
            timeout_s=options.get("timeout_s"),
            device_wait_s=options.get("device_wait_s"),
        )
        plan = plan_to_check(content, again)
        launcher = stack.enter_context(laboratory(plan, observer.note, turns_of(plan, observer.note)))
        launcher.preload(plan.device)
        info, machine = launcher.describe(plan.device, plan.multiple_of)

        def budget_now() -> Budget:
            with launcher.turn():  # as in a search
                budget = budget_of(plan, machine, 0, info.device_used_bytes)
            observer.found(info, machine, budget)
            return budget

        def session(budget: Budget) -> Session:
            return Session(plan, store, launcher, observer, info, machine, budget, started)

        gate = Gate(
            path=file,
            content=content,
            given=given,
            plan=plan,
            again=again,
            batch=batch,
            workload=info,
            machine=machine,
        )
        based_on = (recorded.based_on or recorded.id) if recorded else None
        return gate.pass_through(budget_now, session if probing else None, based_on)


def _recorded(store: Store, search_id: str) -> SearchRecord | None:
    """The search that made a file, if this ledger knows it."""
    try:
        record = store.get(search_id)
    except UsageError:
        return None
    return record if record.id == search_id else None
