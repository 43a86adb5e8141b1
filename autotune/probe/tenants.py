"""Did other processes' use of the device change so much that a probe proves nothing? Pure."""

from autotune.model import Budget, Cause, Failure
from autotune.units import MIB, format_bytes

CHANGE_SHARE = 0.01
"""Of the capacity: others may use so much more or less at the end of a probe than at its start."""
CHANGE_LEAST_BYTES = 256 * MIB
"""... and at least this, about one CUDA context that comes or goes."""
_HINT = (
    "run the same command again when the device is quiet, or with a smaller --memory-limit; finished probes are kept"
)


def disturbance(budget: Budget, before_bytes: int | None, after_bytes: int | None) -> Failure | None:
    """The failure of a probe that others disturbed; None where they did not, or nothing is known of them.

    Their memory cannot be told from the probe's own outside PyTorch's allocator while it runs, and a device without room
    for the budget fails a batch that would fit.

    Args:
        budget: what the probe was promised.
        before_bytes: held on the device by other processes just before the probe's process was started.
        after_bytes: the same just after it had ended.
    """
    if before_bytes is None or after_bytes is None:
        return None
    allowed = max(CHANGE_LEAST_BYTES, int(CHANGE_SHARE * budget.capacity_bytes))
    missing = budget.limit_bytes - (budget.capacity_bytes - max(before_bytes, after_bytes))
    if abs(after_bytes - before_bytes) <= allowed and missing <= 0:
        return None
    message = (
        f"other processes hold {format_bytes(after_bytes)} of the device after this probe; it was {format_bytes(before_bytes)}"
        f" before it and {format_bytes(budget.others_bytes)} when the search began"
    )
    if missing > 0:
        message += f", which leaves {format_bytes(missing)} less than the budget"
    return Failure(cause=Cause.OTHERS, message=message, hint=_HINT)


def gone_bytes(before_bytes: int | None, after_bytes: int | None) -> int:
    """What others held before a probe and no longer after it; 0 where that is not known. As in ``disturbance``."""
    return 0 if before_bytes is None or after_bytes is None else max(0, before_bytes - after_bytes)


def departure(
    limit_bytes: int, at_cap_bytes: int | None, now_bytes: int | None, others_gone_bytes: int = 0
) -> Failure | None:
    """The failure of a probe whose limit was set while others held the device that were gone by its end; None where there
    were none, or nothing is known.

    What is used outside of its allocator when a probe gets its limit counts as its own and is taken off. Its own never gets
    less. A limit that is too small by the tolerance above, here of the budget, is right enough.

    Args:
        limit_bytes: the budget.
        at_cap_bytes: taken off it for what was outside of the allocator.
        now_bytes: what would be taken off at the probe's end.
        others_gone_bytes: how much less those hold that were never taken off, since they were there before the probe; from
            within, its end looks as if that much less were its own.
    """
    if at_cap_bytes is None or now_bytes is None:
        return None
    left = at_cap_bytes - now_bytes - others_gone_bytes
    if left <= max(CHANGE_LEAST_BYTES, int(CHANGE_SHARE * limit_bytes)):
        return None
    message = (
        f"other processes held {format_bytes(left)} of the device when this probe got its limit, and nothing of that at its"
        f" end: {format_bytes(at_cap_bytes)} outside of its own allocator were taken off the budget of"
        f" {format_bytes(limit_bytes)}, {format_bytes(now_bytes)} would have been right"
    )
    return Failure(cause=Cause.OTHERS, message=message, hint=_HINT)
