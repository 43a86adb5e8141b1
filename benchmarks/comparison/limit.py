"""Brute force around an answer: which size to try next, and what the tries say. Pure."""

import math
from collections.abc import Mapping

REACH = 0.01
"""Share of the answer up to which every larger size is tried: with the native allocator a size may fail below one that
fits, so one failure does not end the search."""
LEAST_REACH = 2
FAILURES = 2
"""Sizes in a row that end it."""
MOST_PROBES = 20


def next_size(tried: Mapping[int, bool], start: int) -> int | None:
    """The next size to probe; None when the limit is found, or enough was tried.

    From ``start`` on, one by one; where all of those fit, farther and farther up, where the start fails, farther and
    farther down, and then by bisection.

    Args:
        tried: size -> whether it is safe.
        start: the answer to be judged, at least 1.
    """
    if len(tried) >= MOST_PROBES:
        return None
    if start not in tried:
        return start
    if tried[start]:
        reach = start + max(LEAST_REACH, math.ceil(REACH * start))
        for size in range(start + 1, reach + 1):
            if _gave_up(tried, size):
                return None
            if size not in tried:
                return size
    best = largest(tried)
    if best is None:
        lowest = min(tried)
        return None if lowest == 1 else max(1, lowest - max(1, start - lowest, math.ceil(REACH * start)))
    above = [size for size, fits in tried.items() if size > best and not fits]
    if not above:
        return best + max(1, best - start)
    return None if min(above) - best <= 1 else (best + min(above)) // 2


def largest(tried: Mapping[int, bool]) -> int | None:
    """The largest size that is safe; None if none was."""
    return max((size for size, fits in tried.items() if fits), default=None)


def is_exact(tried: Mapping[int, bool]) -> bool:
    """Whether the size right above the largest safe one was tried and failed; without a safe one, whether 1 failed."""
    return tried.get((largest(tried) or 0) + 1) is False


def _gave_up(tried: Mapping[int, bool], size: int) -> bool:
    """Whether the sizes right below this one failed, as many as end the search."""
    return all(tried.get(size - 1 - i) is False for i in range(FAILURES))
