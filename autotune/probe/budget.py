"""How many bytes the job may use, and why. Pure, but for reading the host's limits."""

from autotune.errors import EnvironmentTrouble, UsageError
from autotune.model import Budget, Machine
from autotune.probe.host import HostLimit
from autotune.units import MIB, format_bytes

HEADROOM_SHARE = 0.02
"""Left free of the capacity: drivers, other processes' small changes, kernels that load late."""
HEADROOM_LEAST_BYTES = 256 * MIB
"""... and at least this: about one more CUDA context or its growth (0.3-0.75 GiB on data-centre cards, part of it late)."""


def make_budget(
    machine: Machine,
    *,
    memory_limit_bytes: int | None,
    others_bytes: int | None,
    host: HostLimit,
    caller_bytes: int = 0,
    ranks: int = 1,
) -> Budget:
    """The budget of a search; with several ranks that of each.

    Args:
        machine: where it runs.
        memory_limit_bytes: the user's exact, device-wide limit; None = what the device and the host give.
        others_bytes: held on the device by other processes; None = cannot be told.
        host: the tightest host limit (used for the CPU, and where the device's memory is the host's).
        caller_bytes: what the process that will train holds beyond a fresh one. On the CPU it is taken off a limit on
            the process; available memory and cgroups have left it out already.
        ranks: processes that train together. On the CPU, and where the device's memory is the host's, they share it; else
            each has a device of its own.

    Raises:
        UsageError: the limit is more than the device has.
        EnvironmentTrouble: the limit is more than others leave.
    """
    shared = machine.device == "cpu" or machine.unified
    capacity = min(machine.capacity_bytes, host.total_bytes) if shared else machine.capacity_bytes
    if machine.unified:  # not their sum: what the host has in use is in use on the device
        others_bytes = max(capacity - host.free_bytes, min(others_bytes or 0, capacity))
    sharing = ranks if shared else 1
    if memory_limit_bytes is not None:
        if memory_limit_bytes * sharing > capacity > memory_limit_bytes:
            raise UsageError(
                f"--memory-limit {format_bytes(memory_limit_bytes)} is for each of {ranks} ranks, which is more than"
                f" {machine.device_name} has ({format_bytes(capacity)})",
                hint=f"give at most {format_bytes(capacity // sharing)}, or fewer --ranks",
            )
        if memory_limit_bytes > capacity:
            raise UsageError(
                f"--memory-limit {format_bytes(memory_limit_bytes)} is more than {machine.device_name} has"
                f" ({format_bytes(capacity)})",
                hint="give a smaller limit, or none to use what is there",
            )
        others = others_bytes or 0
        if memory_limit_bytes > capacity - others:
            raise EnvironmentTrouble(
                f"--memory-limit {format_bytes(memory_limit_bytes)} cannot be had: other processes hold"
                f" {format_bytes(others)} of the {format_bytes(capacity)} of {machine.device_name}",
                hint="wait for them, choose another --device, or give a smaller limit",
            )
        missing = caller_bytes if machine.device == "cpu" else 0
        return Budget(
            limit_bytes=max(0, memory_limit_bytes - missing),
            source="--memory-limit",
            capacity_bytes=capacity,
            others_bytes=others,
            headroom_bytes=0,
            caller_bytes=missing,
        )
    headroom = max(HEADROOM_LEAST_BYTES, int(HEADROOM_SHARE * capacity))
    if machine.device == "cpu":
        free, source, others = host.free_bytes, host.source, max(0, capacity - host.free_bytes)
    else:
        others = others_bytes or 0
        free, source = capacity - others, f"device and {host.source}" if machine.unified else "device"
    missing = caller_bytes if source == "rlimit" else 0
    if source == "rlimit":  # each process has it for itself
        sharing = 1
    return Budget(
        limit_bytes=max(0, (free - headroom - missing) // sharing),
        source=source,
        capacity_bytes=capacity,
        others_bytes=others,
        headroom_bytes=headroom,
        caller_bytes=missing,
    )
