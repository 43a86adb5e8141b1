"""Candidates for the worst batch that training can meet: indices of samples, from their sizes alone.

Which batch takes the most memory depends on what the model does with it, so there are several: padded to the longest, the
most elements in all, the largest targets (boxes, labels), and under a token budget the longest sample and the most samples.
"""

from collections.abc import Iterable, Sequence
from itertools import chain, cycle, islice

from autotune.workload.sizes import Sizes

MOST_CANDIDATES = 4
"""As many as the long form has steps in its first half, each of which trains on one of them."""
_KEPT_LISTS = 64
"""Batches of a sampler that are remembered for being shorter than the worst."""


class LargestSamples:
    """Batches of any size from samples that are put together freely."""

    def __init__(self, sizes: Sizes, indices: Sequence[int], *, repeated: bool = False) -> None:
        """
        Args:
            sizes: of the samples that were looked at.
            indices: of all samples that can be in a batch.
            repeated: larger batches are filled with the largest ones again: there are others like them that are not known.
        """
        self._totals = sizes.totals
        self._repeated = repeated
        self._rest = [index for index in indices if index not in sizes.totals]
        orders = [_largest_first(self._totals, self._totals)]
        orders += [_largest_first(part, self._totals) for part in sizes.varying]
        leaders = sorted({order[0] for order in orders}, key=lambda index: (-self._totals[index], index))
        # Padded to the longest, a batch is worst with the longest of each part in it: they need not be one sample.
        padded = [*leaders, *(index for index in orders[0] if index not in leaders)]
        self._few = len(leaders)
        self._orders = [padded, *orders]
        self._largest = max(self._totals.values())

    def candidates(self, batch_size: int) -> list[list[int]]:
        """Different sets of ``batch_size`` samples (or of all there are), the one to fear most first."""
        orders = self._orders if batch_size >= self._few else [*self._orders[1:], self._orders[0]]
        return _different(self._filled(order, batch_size) for order in orders)

    def shorter(self, batch_size: int, share: float) -> list[int]:
        """The samples nearest to a share of the largest; larger ones last, since one of them makes all as long as it."""
        wanted = share * self._largest
        nearest = sorted(self._totals, key=lambda i: (self._totals[i] > wanted, abs(self._totals[i] - wanted), i))
        if self._repeated:  # a larger one is never needed to fill the batch
            nearest = [index for index in nearest if self._totals[index] <= wanted] or nearest[:1]
        return self._filled(nearest, batch_size)

    def _filled(self, order: list[int], batch_size: int) -> list[int]:
        more = cycle(order[:MOST_CANDIDATES]) if self._repeated else self._rest
        return list(islice(chain(order, more), batch_size))


class WorstLists:
    """The worst of the batches that a sampler composes; they are fed in one by one."""

    def __init__(self, sizes: Sizes) -> None:
        self._totals = sizes.totals
        self._parts = sizes.varying or [sizes.totals]
        self._best: list[tuple[tuple[int, ...], list[int]]] = []
        """For each kind of worst: how bad, and the batch."""
        self._kept: list[tuple[int, list[int]]] = []

    def add(self, indices: list[int]) -> None:
        """One batch."""
        totals = [self._totals.get(index, 0) for index in indices]
        longest, count = max(totals), len(indices)
        padded = count * sum(max(part.get(index, 0) for index in indices) for part in self._parts)
        scores = [(longest, padded), (count, padded), (padded,), (sum(totals),)]
        if not self._best:
            self._best = [(score, indices) for score in scores]
        self._best = [max(old, (score, indices), key=_score) for old, score in zip(self._best, scores, strict=True)]
        if len(self._kept) < _KEPT_LISTS:
            self._kept.append((padded, indices))

    def candidates(self) -> list[list[int]]:
        """The longest sample's batch, the one of the most samples, the largest padded and unpadded; each once."""
        return _different(indices for _, indices in self._best)

    def shorter(self, share: float) -> list[int]:
        """A batch with about this share of the elements, padding included, of the largest one."""
        wanted = share * self._best[2][0][0]
        return min(self._kept, key=lambda kept: (kept[0] > wanted, abs(kept[0] - wanted)))[1]


def _score(one: tuple[tuple[int, ...], list[int]]) -> tuple[int, ...]:
    return one[0]


def _largest_first(part: dict[int, int], totals: dict[int, int]) -> list[int]:
    return sorted(totals, key=lambda index: (-part.get(index, 0), -totals[index], index))


def _different(candidates: Iterable[list[int]]) -> list[list[int]]:
    found: dict[frozenset[int], list[int]] = {}
    for one in candidates:
        found.setdefault(frozenset(one), one)
    return list(found.values())[:MOST_CANDIDATES]
