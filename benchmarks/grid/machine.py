"""Running the probes of a grid, each in a process of its own under the cap, and writing each down at once."""

from collections.abc import Callable
from pathlib import Path

from autotune import api
from autotune.model import Cause, Form, Machine, Outcome, ProbeResult, Question, Reason, Settings
from autotune.probe.launcher import Launcher
from benchmarks.common.clock import Clock
from benchmarks.common.documents import Run, read, write
from benchmarks.comparison.reference import room
from benchmarks.grid.cases import GridCase
from benchmarks.grid.cells import Cell, next_cell
from benchmarks.grid.recording import Recording, check_same, to_row


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
    known = read(out, Recording) if out.exists() else None
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
    comparing = cell.form is Form.COMPARE
    question = Question(
        batch_size=cell.batch,
        form=cell.form,
        reason=Reason.COMPARE if comparing else Reason.KNOWN,
        settings=cell.settings,
        reference=Settings() if comparing else None,
    )
    return launcher.probe(question, *room(machine, cap_bytes))


def _told(cell: Cell, probe: ProbeResult) -> str:
    changes = cell.settings.changes(Settings())
    words = " ".join(f"{name}={value}" for name, value in changes.items()) or "as it is"
    rate = f", {probe.samples_per_second:,.1f} samples/s" if probe.samples_per_second else ""
    why = f" ({probe.failure.message.splitlines()[0]})" if probe.failure and probe.failure.message else ""
    return f"{words}, {cell.form} at {cell.batch}: {probe.outcome}{why}{rate} in {probe.seconds:.1f} s"
