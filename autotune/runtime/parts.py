"""Micro-batches in parts: cut by samples, weighed by what the mean of their loss is over."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch

from autotune.runtime.halves import NotCut, count_samples, halve

Halve = Callable[[Any], tuple[Any, Any] | None]
Count = Callable[[Any], float | torch.Tensor]

_FEW = 3
"""Halvings above a single sample whose result is few samples: three or four, where there are as many."""


class Parts:
    """Cuts the batches of one training."""

    def __init__(self, *, mean: bool, count: Count | None, halve_by: Halve | None) -> None:
        """
        Args:
            mean: the loss is a mean over what ``count`` counts; else a sum.
            count: of a batch; None = its samples.
            halve_by: cuts a batch; None = by samples.
        """
        self._mean, self._count, self._halve_by = mean, count, halve_by

    def halves(self, batch: Any) -> tuple[Any, Any] | None:
        """The batch in two; None where it has a single sample.

        Raises:
            NotCut: its form does not tell where a sample ends.
        """
        return (self._halve_by or halve)(batch)

    def weighted(self, batch: Any) -> list[tuple[Any, float]] | None:
        """Its halves, each with the weight of its loss in that of the batch; None where it has a single sample.

        A part in which nothing counts is left out: the mean of its loss is not a number. Counting tokens on a device
        waits for it; that is done for batches that are split, and for no others.

        Raises:
            NotCut: its form does not tell where a sample ends, or samples cannot be counted.
        """
        halves = self.halves(batch)
        if halves is None or not self._mean:
            return None if halves is None else [(half, 1.0) for half in halves]
        counted = [(half, float((self._count or count_samples)(half))) for half in halves]
        total = sum(number for _, number in counted)
        return [(half, number / total) for half, number in counted if number > 0]

    def samples(self, batch: Any) -> int | None:
        """Samples of a batch; None where they cannot be counted."""
        with suppress(NotCut):
            return count_samples(batch)
        return None

    def few(self, batch: Any, *, last: bool = False) -> list[Any]:
        """Batches of four (or three) and of two of its first samples, as far as it has more than these; of its last ones
        the odd sample is missing in each half, so that the first batch may have up to seven.

        Raises:
            NotCut: its form does not tell where a sample ends.
        """
        sizes = [batch]
        while (cut := self.halves(sizes[-1])) is not None:
            sizes.append(cut[1 if last else 0])
        return sizes[max(1, len(sizes) - _FEW) : -1]
