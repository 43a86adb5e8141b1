"""Which probes of an unfinished search still say the same, under the budget that there is now."""

from collections.abc import Sequence

from autotune.model import Cause, Outcome, ProbeResult

_MEMORY_CAUSES = frozenset({Cause.DEVICE_MEMORY, Cause.HOST_MEMORY, Cause.OVER_BUDGET, Cause.THRASHING, Cause.SPILLED})


def still_valid(probes: Sequence[ProbeResult], limit_bytes: int) -> tuple[ProbeResult, ...]:
    """Those of earlier probes that say the same under another budget."""
    return tuple(p for p in probes if (_still_fits if p.fits else _still_fails)(p, limit_bytes))


def _still_fits(probe: ProbeResult, limit_bytes: int) -> bool:
    measured = probe.measurement
    if probe.budget_bytes <= limit_bytes:
        return True
    # Only where the allocator says what it held: the CPU's peak is of resident memory, its cap of all that is mapped.
    return measured.peak_reserved_bytes is not None and (measured.peak_device_bytes or 0) <= limit_bytes


def _still_fails(probe: ProbeResult, limit_bytes: int) -> bool:
    memory = probe.failure is not None and probe.failure.cause in _MEMORY_CAUSES
    if probe.outcome is Outcome.UNRELIABLE:
        return False
    return not memory or probe.budget_bytes >= limit_bytes
