"""A recommendation held against what is here: compare, then one confirming probe. Owned by ``checking``."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from autotune.errors import CheckFailed, NothingFits, UsageError
from autotune.model import Budget, Machine, Plan, ProbeResult, WorkloadInfo
from autotune.planning import make_plan
from autotune.recommended.checked import Checked
from autotune.recommended.compare import budget_changes, machine_changes, other_changes, workload_changes
from autotune.recommended.judging import claimed_answer, trouble, workload_failed
from autotune.report.check import stale_error, unsafe_error
from autotune.report.document import settings_of
from autotune.report.fields import Change, Check, Document
from autotune.session import Session
from autotune.unanswered import no_answer


def overridden(
    again: Plan,
    *,
    device: str | None,
    memory_limit: str | int | None,
    timeout_s: float | None,
    device_wait_s: float | None,
) -> Plan:
    """The plan of the search that made the file, with what is asked for otherwise now; None = as it was.

    Raises:
        UsageError: a value makes no sense.
    """
    given = make_plan(
        again.source,
        memory_limit=again.memory_limit_bytes if memory_limit is None else memory_limit,
        timeout_s=again.timeout_s if timeout_s is None else timeout_s,
        device_wait_s=again.device_wait_s if device_wait_s is None else device_wait_s,
    )
    return replace(
        again,
        device=again.device if device is None else device,
        memory_limit_bytes=given.memory_limit_bytes,
        timeout_s=given.timeout_s,
        device_wait_s=given.device_wait_s,
    )


def plan_to_check(content: Document, again: Plan) -> Plan:
    """The plan of a check: that of the search, under the settings it recommends, on the kind of device the file is for."""
    return replace(
        again,
        settings=settings_of(content),
        space=(),
        other_allocators=(),
        effective_batch=None,
        recommend=False,
        time_budget_s=None,
        device=again.device if again.device != "auto" else content.machine.device,
    )


@dataclass(frozen=True, kw_only=True)
class Gate:
    """One check of one file."""

    path: Path
    content: Document
    given: Sequence[str]
    """Words that named the workload beside the file, for hints."""
    plan: Plan
    """Of the check."""
    again: Plan
    """Of the search that made the file."""
    batch: int
    """Size to probe."""
    workload: WorkloadInfo
    machine: Machine

    def pass_through(
        self, budget_now: Callable[[], Budget], session: Callable[[Budget], Session] | None, based_on: str | None
    ) -> Checked:
        """Compare, and probe if nothing found makes the file stale.

        Args:
            budget_now: what the job may use.
            session: runs and records the probe; None = none is wanted.
            based_on: the search that made the file, if it is in the ledger.

        Raises:
            WorkloadError: the workload fails by itself.
            EnvironmentTrouble: the machine stands in the way.
        """
        content = self.content
        changes = [
            *workload_changes(content, self.workload),
            *machine_changes(content, self.machine),
            *other_changes(content),
        ]
        if any(change.stale for change in changes):
            return self._made(changes, None)
        try:
            budget = budget_now()
        except UsageError as error:  # the limit that the search had is more than there is here
            failure = CheckFailed(f"{self.path} does not hold here: {error.message}", hint=error.hint)
            return self._made(changes, None, failure=failure)
        changes += budget_changes(content, budget, self.batch, probing=session is not None)
        if session is None:
            return self._made(changes, budget)
        claimed = claimed_answer(content, self.batch, self.plan)
        search_id, safe, probes = session(budget).check(claimed, based_on)
        if safe:
            return self._made(changes, budget, search_id, probes)
        if (stood_in_the_way := trouble(probes[-1])) is not None:
            raise stood_in_the_way
        why = no_answer(probes, self.workload, self.plan.settings.precision)
        if workload_failed(probes[-1]):
            raise why
        split = why.detail if isinstance(why, NothingFits) else ""
        failure = unsafe_error(self.path, probes[-1], split, self.given)
        return self._made(changes, budget, search_id, probes, failure)

    def _made(
        self,
        changes: Sequence[Change],
        budget: Budget | None,
        search_id: str | None = None,
        probes: tuple[ProbeResult, ...] = (),
        failure: CheckFailed | None = None,
    ) -> Checked:
        last = probes[-1] if probes else None
        found = Check(
            created=datetime.now(UTC),
            changes=tuple(changes),
            batch=last.batch_size if last else None,
            outcome=last.outcome.value if last else None,
            steps=last.measurement.steps_executed if last else None,
            peak_bytes=last.measurement.peak_device_bytes if last else None,
            budget_bytes=budget.limit_bytes if budget else None,
            search_id=search_id,
        )
        return Checked(
            path=self.path,
            document=self.content.model_copy(update={"check": found}),
            plan=self.again,
            workload=self.workload,
            machine=self.machine,
            budget=budget,
            probes=probes,
            failure=failure or stale_error(self.path, changes, self.given),
        )
