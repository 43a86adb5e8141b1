"""Batches that a sampler of the user's composes, by a token budget for example: the worst of an epoch or several."""

import time
from collections.abc import Iterable
from typing import Any

from torch.utils.data import DataLoader

from autotune.model import LoaderInfo
from autotune.workload.dataloader import Repeated, info, remade
from autotune.workload.dataset import Clock, Counted, Indexed, Within, notes_of
from autotune.workload.dataset import length as length_of
from autotune.workload.sizes import MOST_SECONDS, Sizes
from autotune.workload.worst import WorstLists

_EPOCHS = 8
"""Epochs whose batches are looked at: samplers that shuffle compose others in each."""

_MOST_LISTS = 100_000
"""Batches of an epoch that are looked at; some samplers have no end."""


class Sampled:
    """A loader of a data set that can be read by index, with a batch sampler that decides how many samples are in a batch."""

    def __init__(self, loader: DataLoader[Any], sizes: Sizes, batch_size: int, clock: Clock = time.monotonic) -> None:
        """Look at the sampler's lists of indices; no sample is read.

        Args:
            loader: the user's.
            sizes: of its samples, as far as they were looked at.
            batch_size: that the loader was made for.
            clock: seconds; the look ends after 10 of them.
        """
        self._loader = loader
        self._sizes = sizes
        self._worst, self._full = WorstLists(sizes), WorstLists(sizes)
        self.size: int | None = None
        self.varies = sizes.vary
        self.batches: int | None = None
        """In the first epoch; None where it did not end in time."""
        self.most_samples = 0
        """In any batch."""
        deadline = clock() + MOST_SECONDS
        self.notes = notes_of(sizes, length_of(loader.dataset) or 0, loader.dataset)
        if not self._look(batch_size, deadline, clock):
            self.notes += ("looked only at the first batches that the sampler composes; worse may come later",)
        self._samples = batch_size if self.most_samples == batch_size else None
        if self._samples is not None:  # such as those of buckets: the last batch of each is smaller, and not the worst
            self._worst = self._full
        self.sized = self._samples is not None
        self.loader: LoaderInfo | None = info(loader)

    def _look(self, batch_size: int, deadline: float, clock: Clock) -> bool:
        """Whether at least one epoch was looked at to its end."""
        sampler: Any = self._loader.batch_sampler
        for epoch in range(_EPOCHS):
            for shuffled in (sampler, getattr(sampler, "sampler", None)):
                if callable(getattr(shuffled, "set_epoch", None)):
                    shuffled.set_epoch(epoch)  # type: ignore[union-attr]
            count = 0
            for indices in filter(len, sampler):
                count += 1
                self._worst.add(list(indices))
                if len(indices) == batch_size:
                    self._full.add(list(indices))
                self.most_samples = max(self.most_samples, len(indices))
                if clock() > deadline or count == _MOST_LISTS:
                    return epoch > 0
            if epoch == 0:
                self.batches = count
        return True

    def candidates(self, batch_size: int) -> int:
        return len(self._worst.candidates())

    def batch(self, batch_size: int, candidate: int = 0) -> Counted:
        found = self._worst.candidates()
        return self._read(found[candidate % len(found)]), self._samples

    def shorter(self, batch_size: int, share: float) -> Counted:
        return self._read(self._worst.shorter(share)), self._samples

    def load(self, batch_size: int, batches: int, workers: int, pin_memory: bool) -> Iterable[Any]:
        worst = [max(self._worst.candidates(), key=len)] * max(1, workers)
        sampler: Any = self._loader.batch_sampler
        return remade(self._loader, workers, pin_memory, Repeated(worst, sampler, batches))

    def within(self, length: int) -> Within:
        """Of the samples themselves: what batches the sampler makes of them at one size for all buckets is of no interest."""
        data = self._loader.dataset
        indices = range(length_of(data) or 0)
        found = Indexed(
            data, self._loader.collate_fn, indices=indices, like=self._loader, loader=self.loader, known=self._sizes
        )
        return found.within(length)

    def _read(self, indices: list[int]) -> object:
        data, collate = self._loader.dataset, self._loader.collate_fn
        return collate([data[index] for index in indices])
