"""Which batch sizes a trace is made of: a few small ones, chosen so that they tell as much as they can.

The first two, 2 and 3, cost nothing and separate constant from proportional requests, since neither is a multiple of the
other. Kernels, and with them workspaces, change with the size of the problem, so the last one is as near to the limit
as a recording may come without being an expensive probe itself.
"""

from collections.abc import Sequence
from math import gcd

from autotune.model import PassPeaks

FIRST_MULTIPLES = (2, 3)
"""Size 1 is left out: squeezes, broadcasts and batch normalisation treat it differently."""
SHARE_OF_LIMIT = 0.33
"""The largest size recorded, as a share of the limit that the sizes before it foretell, and the most memory that the
batch may take there, as a share of what is left of the cap beside what is held at every size."""
_WORTH_A_PASS = 2
"""A size less than this many times the largest so far tells nothing new."""
_PASSES = 5


def next_size(
    passes: Sequence[PassPeaks], tried: Sequence[int], *, unit: int, cap_bytes: int, held_bytes: int, largest: int
) -> int | None:
    """The next batch size to record, or None when the recording is complete.

    Args:
        passes: what was recorded, sizes ascending.
        tried: sizes of all passes, also of those that could not be used.
        unit: sizes are multiples of this.
        cap_bytes: what the allocator may reserve.
        held_bytes: of the peaks, what no batch changes: parameters, buffers, optimizer state.
        largest: no size is above this.
    """
    last = passes[-1] if passes else None
    if len(tried) < len(FIRST_MULTIPLES) or last is None:
        size = (FIRST_MULTIPLES[0] + len(tried)) * unit
        fits = size <= largest and (last is None or size <= _reach(last, cap_bytes, held_bytes))
        return size if fits and len(tried) < _PASSES else None
    if len(tried) >= _PASSES:
        return None
    limit = min(_limit(passes, cap_bytes), largest)
    # Small sizes say little about where the limit is: no farther than where the share is sure to suffice.
    size = int(SHARE_OF_LIMIT * min(limit, _reach(last, cap_bytes, held_bytes))) // unit * unit
    return _telling(size, tried, unit) if size >= _WORTH_A_PASS * last.batch_size else None


def _reach(last: PassPeaks, cap_bytes: int, held_bytes: int) -> float:
    """A size sure to fit: what is not held at every size grows at most in proportion to it."""
    return last.batch_size * (cap_bytes - held_bytes) / max(last.allocated_bytes - held_bytes, 1)


def _limit(passes: Sequence[PassPeaks], cap_bytes: int) -> float:
    """Where the line through the last two peaks reaches the cap; memory is convex, so it is there or below."""
    last = passes[-1]
    slope = last.allocated_bytes / last.batch_size
    if len(passes) > 1:
        before = passes[-2]
        slope = (last.allocated_bytes - before.allocated_bytes) / (last.batch_size - before.batch_size)
    if slope <= 0:
        return float("inf")
    return last.batch_size + (cap_bytes - last.allocated_bytes) / slope


def _telling(size: int, tried: Sequence[int], unit: int) -> int:
    """The nearest size from ``size`` down that shares no factor with an earlier one, as far as there is one."""
    for candidate in range(size // unit, tried[-1] // unit, -1):
        if all(gcd(candidate, earlier // unit) == 1 for earlier in tried):
            return candidate * unit
    return size
