"""Memory of the device that really lay in the host's: under Windows and WSL the driver moves there what does not fit. Pure.

Then nothing runs out of memory and every step takes many times as long, so that a size "fits" that nobody would train at.
"""

import platform
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from autotune.model import Budget, Cause, Failure, Form, Machine, Outcome, ProbeResult, Question
from autotune.units import format_bytes, format_seconds

CLIFF = 3.0
"""Time per sample, as a multiple of the best at smaller sizes, from which on memory must be somewhere else. Within the
device a sample gets cheaper with the size or stays as it is; over the bus a step takes 5 to 20 times as long."""
_TIMED = frozenset({Form.SHORT, Form.LONG, Form.TIMED})
"""Forms that train at one size, so that their step times can be compared."""
_HINT = (
    "a smaller batch stays in the device's memory; in the NVIDIA control panel, `CUDA - Sysmem Fallback Policy: Prefer No "
    "Sysmem Fallback` makes the driver refuse instead"
)


def may_spill(machine: Machine, version: Path = Path("/proc/version"), system: str | None = None) -> bool:
    """Whether the driver here moves device memory into the host's: CUDA under Windows, or under its subsystem for Linux.

    Args:
        machine: where probes run.
        version: what the kernel says of itself.
        system: of the operating system, as ``platform.system`` names it; None = this one's.
    """
    if machine.device != "cuda" or machine.unified:
        return False
    if (system or platform.system()) == "Windows":
        return True
    try:
        return "microsoft" in version.read_text(errors="replace").lower()
    except OSError:  # not Linux
        return False


def judged(result: ProbeResult, earlier: Sequence[ProbeResult], capacity_bytes: int) -> ProbeResult:
    """The result, unsafe if it fits only by memory that the device does not have.

    Args:
        result: of the probe.
        earlier: probes of the same workload and machine.
        capacity_bytes: of the device.
    """
    if not result.fits:
        return result
    failure = _beyond_capacity(result, capacity_bytes) or _cliff(result, earlier)
    return replace(result, outcome=Outcome.UNSAFE, failure=failure) if failure else result


def _beyond_capacity(result: ProbeResult, capacity_bytes: int) -> Failure | None:
    seen = result.measurement
    held = (seen.peak_reserved_bytes or 0) + (seen.non_pytorch_bytes or 0)
    others = seen.others_bytes or 0
    if held + others <= capacity_bytes:
        return None
    beside = f" beside {format_bytes(others)} of other processes" if others else ""
    message = f"held {format_bytes(held)}{beside}, and the device has {format_bytes(capacity_bytes)}"
    return Failure(cause=Cause.SPILLED, message=f"{message}: the rest lay in the host's memory", hint=_HINT)


def _cliff(result: ProbeResult, earlier: Sequence[ProbeResult]) -> Failure | None:
    pace = _seconds_per_sample(result)
    if pace is None:
        return None
    paces = [
        (known, probe.batch_size)
        for probe in earlier
        if probe.fits and probe.settings == result.settings and probe.batch_size < result.batch_size
        if (known := _seconds_per_sample(probe)) is not None
    ]
    best, size = min(paces, default=(pace, 0))
    if pace <= CLIFF * best:
        return None
    message = (
        f"a sample takes {format_seconds(pace)} of a step, {pace / best:.1f} times as long as at batch {size}: memory lay in "
        "the host's"
    )
    return Failure(cause=Cause.SPILLED, message=message, hint=_HINT)


def _seconds_per_sample(result: ProbeResult) -> float | None:
    rate = result.samples_per_second
    return 1 / rate if rate and result.form in _TIMED and result.trace is None else None


class _Prober(Protocol):
    def probe(self, question: Question, budget: Budget, reserve_bytes: int) -> ProbeResult: ...


class SpillWatch:
    """A prober that judges what another one measured, where memory may spill."""

    def __init__(self, prober: _Prober, machine: Machine, history: Sequence[ProbeResult]) -> None:
        """
        Args:
            prober: runs the probes.
            machine: where.
            history: probes already known.
        """
        self._prober = prober
        self._capacity_bytes = machine.capacity_bytes
        self._earlier = list(history)

    def probe(self, question: Question, budget: Budget, reserve_bytes: int) -> ProbeResult:
        """Run one probe (see ``ports.Prober``)."""
        result = self._prober.probe(question, budget, reserve_bytes)
        result = judged(result, self._earlier, self._capacity_bytes)
        self._earlier.append(result)
        return result
