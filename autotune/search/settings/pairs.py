"""Is one set of step times really shorter than another? A paired test in a page, as SciPy is no dependency."""

from collections.abc import Sequence
from itertools import groupby

SIGNIFICANT = 0.05
"""Chance of being wrong that is accepted."""


def shorter(first: Sequence[float], second: Sequence[float]) -> float:
    """Chance of seeing ``first`` so much shorter than ``second`` by luck alone: Wilcoxon's signed-rank test, one-sided, exact.

    Pairs are made by index; what is left over of the longer one is not used. Pairs that are equal say nothing and are left
    out, equal differences share their ranks. 1.0 where nothing is left.
    """
    differences = [b - a for a, b in zip(first, second, strict=False) if a != b]
    ranks = _doubled_ranks([abs(d) for d in differences])
    seen = sum(rank for rank, d in zip(ranks, differences, strict=True) if d > 0)
    # ways[s]: how many of the 2^n ways to choose signs give the sum s of positive ranks
    ways = [1] + [0] * sum(ranks)
    for rank in ranks:
        for total in range(len(ways) - 1, rank - 1, -1):
            ways[total] += ways[total - rank]
    return sum(ways[seen:]) / sum(ways)


def _doubled_ranks(sizes: Sequence[float]) -> list[int]:
    """Ranks by size, times two, so that the mean rank of equal ones is whole too."""
    order = sorted(range(len(sizes)), key=lambda i: sizes[i])
    ranks = [0] * len(sizes)
    place = 0
    for _, group in groupby(order, key=lambda i: sizes[i]):
        equal = list(group)
        for i in equal:
            ranks[i] = 2 * place + len(equal) + 1
        place += len(equal)
    return ranks
