"""Batches that the user's loader hands out ready-made: the worst of those that come by, kept outside of the process."""

import tempfile
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import IO, Any

import torch

from autotune.apply import Unsupported
from autotune.model import LoaderInfo
from autotune.workload.batch import batch_bytes, map_tensors, shapes
from autotune.workload.dataset import Clock, Counted, Within
from autotune.workload.lengths import equally_long
from autotune.workload.sizes import MOST_SECONDS
from autotune.workload.worst import MOST_CANDIDATES

_MOST_BATCHES = 1_000
_MOST_SIZES = 8
"""Batches of different sizes that are kept for being shorter than the worst."""


class Ready:
    """An iterable of batches."""

    varies: bool
    sized = False
    size: int | None = None

    def __init__(
        self,
        make: Callable[[int, bool], Iterable[Any]],
        loader: LoaderInfo | None,
        clock: Clock = time.monotonic,
        most: int = _MOST_BATCHES,
    ) -> None:
        """Read batches and keep the worst ones.

        Args:
            make: (workers, pin_memory) -> the iterable, which begins anew.
            loader: what is known of it; None where it is no loader, and workers cannot be given to it.
            clock: seconds; the look ends after 10 of them.
            most: batches to look at.
        """
        self._make = make
        self.loader = loader
        self._best: list[tuple[tuple[int, ...], _Kept]] = []
        self._sizes: dict[int, _Kept] = {}
        self.seen, self.ended = 0, True
        deadline = clock() + MOST_SECONDS
        for batch in make(0, False):
            if self.seen == most or clock() > deadline:
                self.ended = False
                break
            self._add(batch)
            self.seen += 1
        self.varies = len(self._sizes) > 1
        self.notes: tuple[str, ...] = ()
        if not self.ended:
            self.notes = (
                f"looked at the loader's first {self.seen:,} batches for the worst ones; worse may come later",
            )

    def _add(self, batch: object) -> None:
        found = [shape for shape in shapes(batch) if shape]
        size = batch_bytes(batch)
        longest = max((extent for shape in found for extent in shape[1:]), default=0)
        scores = [(size,), (longest, size), (found[0][0] if found else 0, size)]
        kept = None
        if size not in self._sizes and len(self._sizes) < _MOST_SIZES:
            kept = self._sizes[size] = _Kept(batch)
        if not self._best:
            kept = kept or _Kept(batch)
            self._best = [(score, kept) for score in scores]
        for number, score in enumerate(scores):
            if score > self._best[number][0]:
                kept = kept or _Kept(batch)
                self._best[number] = (score, kept)

    def candidates(self, batch_size: int) -> int:
        return len(self._different())

    def batch(self, batch_size: int, candidate: int = 0) -> Counted:
        found = self._different()
        return found[candidate % len(found)].again(), None

    def shorter(self, batch_size: int, share: float) -> Counted:
        wanted = share * self._best[0][0][0]
        size = min(self._sizes, key=lambda size: (size > wanted, abs(size - wanted)))
        return self._sizes[size].again(), None

    def load(self, batch_size: int, batches: int, workers: int, pin_memory: bool) -> Iterable[Any]:
        if workers and self.loader is None:
            raise Unsupported(
                "make_loader returns batches that are ready, not a DataLoader: autotune cannot give it workers"
            )
        return islice(self._epochs(workers, pin_memory), batches)

    def _epochs(self, workers: int, pin_memory: bool) -> Iterator[Any]:
        while True:
            count = 0
            for count, batch in enumerate(self._make(workers, pin_memory), 1):  # noqa: B007 - looked at below
                yield batch
            if not count:
                return

    def within(self, length: int) -> Within:
        raise equally_long(
            "the loader gives batches that are ready, from which no samples of a length can be taken",
            "return the samples from make_dataset(), or a DataLoader of a data set that is read by index",
        )

    def _different(self) -> list["_Kept"]:
        return list(dict.fromkeys(kept for _, kept in self._best))[:MOST_CANDIDATES]


class _Kept:
    """A batch in a file without a name, read anew each time: what a probe holds of memory is what training would."""

    def __init__(self, batch: object) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the batch is wanted
        weakref.finalize(self, self._file.close)
        self._batch: object = None
        try:
            torch.save(batch, self._file)
        except Exception:  # noqa: BLE001 - objects of the user's refuse in ways of their own; then the batch itself is kept
            self._batch = batch

    def again(self) -> object:
        """The batch."""
        if self._batch is not None:
            return map_tensors(self._batch, torch.clone)
        self._file.seek(0)
        return torch.load(self._file, weights_only=False)  # written above, by this process
