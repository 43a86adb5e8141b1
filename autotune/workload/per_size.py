"""Loaders that are made for one size each: their batches, and the size from which on they grow no more."""

import time
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from autotune.errors import AutotuneError, WorkloadError
from autotune.model import LoaderInfo
from autotune.workload.batch import batch_bytes
from autotune.workload.dataloader import batch_size_of, indices_of, info, is_plain, remade
from autotune.workload.dataset import BatchSource, Clock, Counted, Indexed, Streamed, Within, has_index, length
from autotune.workload.lengths import equally_long
from autotune.workload.ready import Ready
from autotune.workload.sampled import Sampled
from autotune.workload.sizes import MOST_SECONDS, Sizes, look

_FIRST_SIZES = (64, 1, 4096)
"""Tried in this order to see what kind of loader it is: a token budget may give nothing, or raise."""
_FIRST_BATCHES = 16
"""Ready batches that are looked at before the size is known."""
_NOT_SAMPLES = "batch sizes and samples/s count what make_loader(batch_size) takes: where that is a token budget, they count tokens"


class PerSize:
    """A source of batches from loaders that a function makes."""

    def __init__(self, make: Callable[[int], Iterable[Any]], clock: Clock = time.monotonic) -> None:
        """
        Args:
            make: batch size -> data loader or iterable of batches.
            clock: seconds; each look at slow data ends after 10 of them.

        Raises:
            WorkloadError: what it makes is no loader.
        """
        self._make = make
        self._clock = clock
        self._looked: tuple[Any, Sizes] | None = None
        """The data set that was looked at last, and what was seen."""
        self._stream: Streamed | None = None
        self._at: tuple[int, BatchSource, int] | None = None
        """Size, its batches, and the size from which on they grow no more, if that is below it."""
        first = self._first()
        self.size = first.size if first else None
        self.varies = first.varies if first else False
        self.loader: LoaderInfo | None = first.loader if first else None
        self.sized = first.sized if first else False
        self.notes = first.notes if first else ()
        if not self.sized:
            self.notes += (_NOT_SAMPLES,)
        self._at = None  # a probe makes its own: two data sets would take memory that training does not
        if self._looked is not None:
            self._looked = None, self._looked[1]
        if self._stream is not None:
            self._stream = self._stream.over(None, None)

    def _first(self) -> BatchSource | None:
        for size in _FIRST_SIZES:
            found = self._opened(size)
            if found is not None and _batches(found) != 0:
                return found
        return None

    def _opened(self, size: int) -> BatchSource | None:
        try:
            return self._open(size, _FIRST_BATCHES)
        except AutotuneError:
            raise
        except Exception:  # noqa: BLE001 - the user's code; if it fails at every size, a probe shows its traceback
            return None

    def candidates(self, batch_size: int) -> int:
        _, source, end = self._source(batch_size)
        return source.candidates(end)

    def batch(self, batch_size: int, candidate: int = 0) -> Counted:
        _, source, end = self._source(batch_size)
        return _counted(source.batch(end, candidate), end, batch_size)

    def shorter(self, batch_size: int, share: float) -> Counted:
        _, source, end = self._source(batch_size)
        return _counted(source.shorter(end, share), end, batch_size)

    def load(self, batch_size: int, batches: int, workers: int, pin_memory: bool) -> Iterable[Any]:
        _, source, end = self._source(batch_size)
        return source.load(end, batches, workers, pin_memory)

    def within(self, length: int) -> Within:
        found = self._first()
        if found is None:
            raise equally_long(
                f"make_loader gives no batch for the sizes {', '.join(str(size) for size in _FIRST_SIZES)}",
                "return the samples from make_dataset()",
            )
        return found.within(length)

    def _source(self, batch_size: int) -> tuple[int, BatchSource, int]:
        if self._at is None or self._at[0] != batch_size:
            self._at = None
            source = self._open(batch_size)
            end = self._end(batch_size, source)
            self._at = batch_size, source if end == batch_size else self._open(end), end
        return self._at

    def _open(self, batch_size: int, most: int | None = None) -> BatchSource:
        """``most``: ready batches to look at."""
        loader = self._make(batch_size)
        if not isinstance(loader, DataLoader) or not is_plain(loader):
            return self._ready(lambda workers, pin_memory: self._make(batch_size), None, most)
        size = batch_size_of(loader)
        if size == batch_size:
            return self._sized(loader)
        if size is not None and self._takes_no_size(batch_size, size):
            raise WorkloadError(
                f"make_loader({batch_size}) returned a DataLoader with batches of {size}",
                hint="hand the size on: DataLoader(data, batch_size=batch_size)",
            )
        if loader.batch_sampler is None or isinstance(loader.dataset, IterableDataset):
            return self._ready(lambda *how: remade(_plain(self._make(batch_size)), *how), info(loader), most)
        sizes = self._sizes(loader, range(length(loader.dataset) or 0))
        return Sampled(loader, sizes, batch_size, self._clock)

    def _ready(self, make: Callable[[int, bool], Iterable[Any]], loader: LoaderInfo | None, most: int | None) -> Ready:
        return Ready(make, loader, self._clock) if most is None else Ready(make, loader, self._clock, most)

    def _sized(self, loader: DataLoader[Any]) -> BatchSource:
        """Batches of as many samples as asked for."""
        described, data, collate = info(loader), loader.dataset, loader.collate_fn
        if not has_index(data):
            if self._stream is None:
                self._stream = Streamed(data, collate, self._clock, like=loader, loader=described)
            return self._stream.over(data, loader)
        indices = indices_of(loader, length(data) or 0)
        return Indexed(
            data,
            collate,
            self._clock,
            indices=indices,
            size=length(loader.sampler),
            like=loader,
            loader=described,
            known=self._sizes(loader, indices) if indices else None,
        )

    def _sizes(self, loader: DataLoader[Any], indices: Any) -> Sizes:
        """What is known of the data set, or of an earlier one that seems to be the same."""
        data = loader.dataset
        known = self._looked
        if known is None or (known[0] is not data and not known[1].agrees(data, length(data) or 0)):
            known = data, look(data, indices, self._clock)
        self._looked = data, known[1]
        return known[1]

    def _takes_no_size(self, batch_size: int, size: int) -> bool:
        other = self._make(batch_size + 1)
        return isinstance(other, DataLoader) and batch_size_of(other) == size

    def _end(self, batch_size: int, source: BatchSource) -> int:
        """The size itself, or a smaller one from which on the batches are the same.

        Raises:
            ValueError: there is no batch at all.
        """
        batches = _batches(source)
        if batches is None:
            return batch_size
        if isinstance(source, Sampled) and batches > 1:
            return self._plateau(batch_size, source)
        if batches > 1:
            return batch_size
        only = self._beginning(batch_size)
        if batches == 1 and self._beginning(batch_size - 1) != only:
            return batch_size
        low, high = 0, batch_size
        deadline = self._clock() + MOST_SECONDS
        while high - low > 1 and self._clock() < deadline:
            middle = (low + high) // 2
            low, high = (low, middle) if self._beginning(middle) == only else (middle, high)
        end = high if batches else low
        if not end:  # an error of the builtin kind: the search may ask for a larger size
            raise ValueError(f"make_loader({batch_size}) gave no batch: the loader is empty")
        return end

    def _plateau(self, batch_size: int, source: Sampled) -> int:
        """Half the size, if the sampler composes as many and as long batches for it."""
        if source.most_samples < 2 or batch_size < 2:
            return batch_size
        half = self._tried(batch_size // 2)
        if not isinstance(half, DataLoader) or half.batch_sampler is None:
            return batch_size
        counts = [len(indices) for indices in half.batch_sampler]
        same = (len(counts), max(counts, default=0)) == (source.batches, source.most_samples)
        return batch_size // 2 if same else batch_size

    def _beginning(self, batch_size: int) -> list[int]:
        """How large the first two batches are, in samples or bytes; nothing where there is none, or the size is refused."""
        loader = self._tried(batch_size) if batch_size else None
        if isinstance(loader, DataLoader) and is_plain(loader):
            if loader.batch_sampler is not None and not isinstance(loader.dataset, IterableDataset):
                return [len(indices) for indices in islice(loader.batch_sampler, 2)]  # no sample is read
            loader = remade(loader, 0, pin_memory=False)
        return [batch_bytes(batch) for batch in islice(loader or (), 2)]

    def _tried(self, batch_size: int) -> Iterable[Any] | None:
        try:
            return self._make(batch_size)
        except Exception:  # noqa: BLE001 - a size that nobody asked for; the user's code may refuse it as it likes
            return None


def _batches(source: BatchSource) -> int | None:
    """How many there are in an epoch; None where that is not known, or the size is one of samples."""
    if isinstance(source, Sampled):
        return source.batches
    return source.seen if isinstance(source, Ready) and source.ended else None


def _plain(loader: Iterable[Any]) -> DataLoader[Any]:
    assert isinstance(loader, DataLoader)
    return loader


def _counted(made: Counted, end: int, asked: int) -> Counted:
    """Past the end, as many as the size the batches end at."""
    return made if end == asked else (made[0], end)
