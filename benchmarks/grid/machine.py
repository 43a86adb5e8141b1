"""Running the probes of a grid, each in a process of its own under the cap, and writing each down at once."""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from autotune import api
from autotune.model import Budget, Cause, Form, Machine, Outcome, ProbeResult, Question, Reason, Settings
from autotune.probe.launcher import Launcher
from autotune.units import GIB
from benchmarks.comparison.results import Run
from benchmarks.grid.cases import GridCase
from benchmarks.grid.cells import Cell, next_cell
from benchmarks.grid.files import write
from benchmarks.grid.recording import Recording, check_same, read, to_row

_ROOM_BYTES = 4 * GIB
"""Left beside the cap for memory outside PyTorch, so that the cap alone decides."""


class OutOfTime(Exception):
    """The time limit was reached before everything was run."""


@dataclass(kw_only=True)
class Clock:
    """Time since the command began, and when no more is begun."""

    limit_s: float
    began: float = field(default_factory=time.monotonic)

    def check(self) -> None:
        """See that there is time left.

        Raises:
            OutOfTime: there is none.
        """
        if time.monotonic() - self.began > self.limit_s:
            raise OutOfTime

    def say(self, text: str) -> None:
        """Progress, on stderr."""
        print(f"[{time.monotonic() - self.began:6.1f} s] {text}", file=sys.stderr, flush=True)


def record_grid(
    case: GridCase,
    out: Path,
    *,
    device: str,
    cap_bytes: int,
    timeout_s: float,
    clock: Clock,
    describe: Callable[[Machine], Run],
) -> Recording:
    """Run what is missing in the file.

    Args:
        case: what the grid consists of.
        out: the file, written after every probe.
        device: ``cuda`` or ``cpu``.
        cap_bytes: of PyTorch's allocator; not used on the CPU.
        timeout_s: wall limit of one probe.
        clock: when to stop.
        describe: notes this call of the command in the file.

    Raises:
        OutOfTime: some probes are left; those that were made are in the file.
        BadResults: the file holds something else.
        WorkloadError: the workload cannot be loaded.
        EnvironmentTrouble: there is no such device.
    """
    known = read(out) if out.exists() else None
    if known is not None and known.workload == case.name and next_cell(case, known.rows) is None:
        return known
    clock.check()
    plan = api.plan(str(case.file), device=device, timeout_s=timeout_s, recommend=False)
    with Launcher(plan.source, timeout_s=timeout_s, seed=plan.seed, say=clock.say) as launcher:
        info, machine = launcher.describe(device, 1)
        recording = Recording(
            workload=case.name,
            parameters=info.parameters,
            traits=info.traits,
            device=machine.device,
            device_name=machine.device_name,
            cap_bytes=cap_bytes,
        )
        if known is not None:
            check_same(known, recording, out)
            recording = known
        recording = recording.with_run(describe(machine))
        write(out, recording)
        skipped: set[Cell] = set()
        while (cell := next_cell(case, recording.rows, skipped)) is not None:
            clock.check()
            probe = _probe(launcher, machine, cell, cap_bytes)
            clock.say(f"{case.name} {len(recording.rows) + 1}: {_told(cell, probe)}")
            trouble = probe.failure is not None and probe.failure.cause is Cause.ENVIRONMENT
            if (
                trouble or probe.outcome is Outcome.UNRELIABLE
            ):  # nothing of the settings: the same command tries it again
                skipped.add(cell)
                continue
            recording = recording.with_row(to_row(probe))
            write(out, recording)
    return recording


def _probe(launcher: Launcher, machine: Machine, cell: Cell, cap_bytes: int) -> ProbeResult:
    budget = Budget(
        limit_bytes=machine.capacity_bytes if machine.device == "cpu" else cap_bytes + _ROOM_BYTES,
        source="benchmark",
        capacity_bytes=machine.capacity_bytes,
        others_bytes=0,
        headroom_bytes=0,
    )
    comparing = cell.form is Form.COMPARE
    question = Question(
        batch_size=cell.batch,
        form=cell.form,
        reason=Reason.COMPARE if comparing else Reason.KNOWN,
        settings=cell.settings,
        reference=Settings() if comparing else None,
    )
    return launcher.probe(question, budget, _ROOM_BYTES)


def _told(cell: Cell, probe: ProbeResult) -> str:
    changes = cell.settings.changes(Settings())
    words = " ".join(f"{name}={value}" for name, value in changes.items()) or "as it is"
    rate = f", {probe.samples_per_second:,.1f} samples/s" if probe.samples_per_second else ""
    why = f" ({probe.failure.message.splitlines()[0]})" if probe.failure and probe.failure.message else ""
    return f"{words}, {cell.form} at {cell.batch}: {probe.outcome}{why}{rate} in {probe.seconds:.1f} s"
