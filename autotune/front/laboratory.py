"""What runs the probes of a plan, and what they may use."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from autotune.errors import UsageError, WorkloadError
from autotune.executors.asked import Kind, Where, make_execution
from autotune.front.given import refuse_unplanned
from autotune.front.observer import LogObserver
from autotune.model import Budget, Machine, Plan, WorkloadInfo
from autotune.ports import Laboratory
from autotune.workload.source import INSIDE_VARIABLE

if TYPE_CHECKING:
    from autotune.executors.workers import Workers
    from autotune.probe.turns import Turns


def refuse_inside() -> None:
    """No search within a probe: its file would be loaded, and would search, without end.

    Raises:
        WorkloadError: this process is one that autotune started to load or probe the file.
    """
    if os.environ.get(INSIDE_VARIABLE):
        raise WorkloadError(
            "a search was started while autotune was loading or probing this very file",
            hint='put the call of find_max_batch() under `if __name__ == "__main__":`',
        )


def turns_of(plan: Plan, say: Callable[[str], None], started: float | None = None) -> "Turns":
    """``started``: instant on ``time.monotonic`` from which the time budget counts; None = it does not."""
    from autotune.probe.turns import Turns

    return Turns(
        wait_s=plan.device_wait_s,
        until=None if started is None or plan.time_budget_s is None else started + plan.time_budget_s,
        say=say,
        host_alone=plan.memory_limit_bytes is None,
        ranks=plan.ranks,
    )


def laboratory(plan: Plan, say: Callable[[str], None], turns: "Turns") -> Laboratory:
    """What runs the probes of this plan's workload."""
    from autotune.probe.command.launcher import CommandLauncher
    from autotune.probe.launcher import Launcher

    if plan.source.command:
        return CommandLauncher(plan.source, timeout_s=plan.timeout_s, seed=plan.seed, say=say, turns=turns)
    return Launcher(plan.source, timeout_s=plan.timeout_s, seed=plan.seed, say=say, turns=turns, ranks=plan.ranks)


def workers_of(plan: Plan, where: Where, say: Callable[[str], None], started: float) -> "Workers | None":
    """Workers, as they were asked for; None where one device of this host is all.

    Raises:
        UsageError: a value makes no sense.
        EnvironmentTrouble: the executor's library is not installed, or there are not so many devices.
    """
    execution = make_execution(plan.device, **where)
    if execution.is_plain:
        return None
    if plan.ranks > 1 and execution.kind is Kind.LOCAL and any(name != "cpu" for name in execution.devices):
        raise UsageError(
            f"--ranks {plan.ranks} and --workers {len(execution.devices)} both ask for the devices of this host",
            hint="leave out --workers: each probe takes the first devices together",
        )
    from autotune.executors.workers import Workers

    return Workers(execution, plan, say, None if plan.time_budget_s is None else started + plan.time_budget_s)


def budget_of(plan: Plan, machine: Machine, caller_bytes: int, used_bytes: int | None) -> Budget:
    """``used_bytes``: of the device, where NVML does not tell."""
    from autotune.probe import nvml
    from autotune.probe.budget import make_budget
    from autotune.probe.host import host_limit

    others = [nvml.used_bytes(machine.device_uuid) if used_bytes is None else used_bytes]
    others += map(nvml.used_bytes, machine.peers)
    return make_budget(
        machine,
        memory_limit_bytes=plan.memory_limit_bytes,
        others_bytes=max((used for used in others if used is not None), default=None),
        host=host_limit(),
        caller_bytes=caller_bytes,
        ranks=plan.ranks,
    )


def inspect(plan: Plan) -> tuple[WorkloadInfo, Machine]:
    """See ``api.inspect``."""
    refuse_unplanned(plan)
    refuse_inside()
    say = LogObserver().note
    with laboratory(plan, say, turns_of(plan, say)) as launcher:
        return launcher.describe(plan.device, plan.multiple_of)
