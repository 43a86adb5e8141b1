"""Batches from the user's data set: the worst ones that can be found, since safe means safe for the longest samples."""

import copy
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, Protocol

from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset, default_collate

from autotune.errors import WorkloadError
from autotune.model import LoaderInfo
from autotune.workload.dataloader import Collate, RandomBatches, loader_of
from autotune.workload.lengths import Lengths, keep
from autotune.workload.seen import kind_of
from autotune.workload.sizes import MOST_SAMPLES, MOST_SECONDS, Sizes, Spans, look, part_sizes
from autotune.workload.worst import MOST_CANDIDATES, LargestSamples

Counted = tuple[object, int | None]
"""A batch and the number of samples in it; None where the size asked for is no number of samples."""
Clock = Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Within:
    """What a data set has for one length bucket."""

    source: "BatchSource | None"
    """Batches of samples at most so long; None where none was seen."""
    samples: int
    """Samples seen that are at most so long."""
    longer: int
    """Samples seen that are longer."""
    longest: int
    """Length of the longest sample in the bucket; 0 where there is none."""


class BatchSource(Protocol):
    """Makes batches of real data."""

    size: int | None
    """The largest batch there can be; None where the data does not say."""
    varies: bool
    """Whether samples are known to differ in size."""
    notes: tuple[str, ...]
    """What was looked at in search of the worst batch, where that was not all."""
    loader: LoaderInfo | None
    """Of the user's own data loader; None where there is none, or its batches come ready from elsewhere."""
    sized: bool
    """Whether a batch has as many samples as the size asked for."""

    def candidates(self, batch_size: int) -> int:
        """How many different batches are candidates for the worst one of this size."""
        ...

    def batch(self, batch_size: int, candidate: int = 0) -> Counted:
        """A candidate for the worst batch, made anew; 0 is the one to fear most. Smaller where there are no more samples."""
        ...

    def shorter(self, batch_size: int, share: float) -> Counted:
        """A batch of about this share of the largest sample's size; only where samples vary."""
        ...

    def load(self, batch_size: int, batches: int, workers: int, pin_memory: bool) -> Iterable[Any]:
        """So many batches as a training loads them, the worst first; fewer where the data ends before.

        Raises:
            Unsupported: it cannot be loaded by worker processes.
        """
        ...

    def within(self, length: int) -> Within:
        """The same of samples that are at most so long, put together freely.

        Raises:
            UsageError: they are equally long, or how long they are cannot be told.
        """
        ...


def length(data: object) -> int | None:
    """``len(data)``; None where it has none."""
    try:
        return len(data)  # type: ignore[arg-type]
    except (TypeError, NotImplementedError):  # what objects and data sets without a length raise
        return None


def has_index(data: object) -> bool:
    """Whether samples are read by index, and how many there are is known."""
    return hasattr(data, "__getitem__") and not isinstance(data, IterableDataset) and length(data) is not None


def empty() -> WorkloadError:
    """The data set has no samples."""
    return WorkloadError("make_dataset() returned an empty data set", hint="check the path and split it reads")


def read_once(data: object) -> WorkloadError:
    """The data set gives its samples once, and probes begin anew."""
    return WorkloadError(
        f"make_dataset() returned {kind_of(data)}, which can be read only once",
        hint="return a list, a torch Dataset, or an object whose __iter__ starts anew",
    )


def checked(data: Any) -> Any:
    """The data set, if it is one.

    Raises:
        WorkloadError: it is something else.
    """
    if isinstance(data, Mapping) or (isinstance(data, tuple) and any(isinstance(part, Dataset) for part in data)):
        raise WorkloadError(
            f"make_dataset() returned {kind_of(data)} of {len(data)} parts",
            hint="return one data set: the one to train on",
        )
    if isinstance(data, Iterator):
        raise read_once(data)
    if not hasattr(data, "__getitem__") and not isinstance(data, Iterable):
        raise WorkloadError(
            f"make_dataset() returned {kind_of(data)}, which has neither __getitem__ nor __iter__",
            hint="return a list of samples or a torch Dataset",
        )
    return data


class Indexed:
    """A data set that can be read by index."""

    sized = True

    def __init__(
        self,
        data: Any,
        collate: Collate | None,
        clock: Clock = time.monotonic,
        *,
        indices: Sequence[int] | None = None,
        size: int | None = None,
        like: DataLoader[Any] | None = None,
        loader: LoaderInfo | None = None,
        known: Sizes | None = None,
        repeated: bool = False,
    ) -> None:
        """
        Args:
            data: the data set.
            collate: samples -> batch; None = PyTorch's default.
            clock: seconds; the look at a slow data set ends after 10 of them.
            indices: the samples that can be in a batch; None = all.
            size: samples in an epoch, where those are not all; None = as many as there are indices.
            like: the user's own loader, whose other arguments loaders take over.
            loader: what is known of it.
            known: sizes of the samples, where the data set was looked at before.
            repeated: larger batches are filled with the largest ones again: they stand for more that cannot be read again.

        Raises:
            WorkloadError: it is empty.
        """
        self._indices = range(length(data) or 0) if indices is None else indices
        if not self._indices:
            raise empty()
        self._data = data
        self._collate: Collate = collate or default_collate
        self._like = like
        self.loader = loader
        self.size: int | None = min(size or len(self._indices), len(self._indices))
        self.sizes = look(data, self._indices, clock) if known is None else known
        self.varies = self.sizes.vary
        self._largest = LargestSamples(self.sizes, self._indices, repeated=repeated)
        self._found: tuple[int, list[list[int]]] = (0, [])
        self.notes = notes_of(self.sizes, len(self._indices), data)

    def candidates(self, batch_size: int) -> int:
        return len(self._candidates(batch_size))

    def batch(self, batch_size: int, candidate: int = 0) -> Counted:
        found = self._candidates(batch_size)
        return self._read(found[candidate % len(found)])

    def shorter(self, batch_size: int, share: float) -> Counted:
        return self._read(self._largest.shorter(batch_size, share))

    def load(self, batch_size: int, batches: int, workers: int, pin_memory: bool) -> DataLoader[Any]:
        """Each worker has the worst batch first; random ones follow."""
        full = batch_size <= len(self._indices)
        worst = [self._candidates(batch_size)[0]] * max(1, workers) if full and self.varies else []
        sampler = RandomBatches(worst, self._indices, batch_size, batches)
        return loader_of(self._data, self._collate, workers, pin_memory, like=self._like, batch_sampler=sampler)

    def within(self, length: int) -> Within:
        lengths = Lengths(self.sizes.spans)
        measured = lengths.known(self.sizes)
        known = {index: measured[index] for index in self._indices if index in measured}
        inside = [index for index in known if known[index] <= length]
        source = self._of(inside, len(self._indices) - len(known), lengths.notes) if inside else None
        longest = max((known[index] for index in inside), default=0)
        return Within(source=source, samples=len(inside), longer=len(known) - len(inside), longest=longest)

    def _of(self, indices: list[int], unknown: int, notes: tuple[str, ...]) -> "Indexed":
        """The same of these samples, and of so many that were not looked at and may be like them."""
        again = copy.copy(self)
        again._indices, again.sizes = indices, self.sizes.only(indices)
        again._largest = LargestSamples(again.sizes, indices, repeated=unknown > 0)
        again._found = 0, []
        again.size = None if self.size is None else min(self.size, len(indices) + unknown)
        again.varies = again.sizes.vary
        again.notes += notes
        return again

    def _candidates(self, batch_size: int) -> list[list[int]]:
        if self._found[0] != batch_size:
            self._found = batch_size, self._largest.candidates(batch_size)
        return self._found[1]

    def _read(self, indices: list[int]) -> Counted:
        """Samples read anew, as a data loader would."""
        return self._collate([self._data[index] for index in indices]), len(indices)


def notes_of(sizes: Sizes, samples: int, data: object) -> tuple[str, ...]:
    """That not every sample was looked at, if so; rows of tensors are alike."""
    while type(data) is Subset:
        data = data.dataset
    if len(sizes.totals) >= samples or type(data) is TensorDataset:
        return ()
    return (f"looked at {len(sizes.totals):,} of {samples:,} samples for the largest ones; a larger sample may exist",)


class _Stream(IterableDataset[object]):
    """An object that can be iterated over, as PyTorch's loader wants it."""

    def __init__(self, data: Iterable[object]) -> None:
        self._data = data

    def __iter__(self) -> Iterator[object]:
        return iter(self._data)


class Streamed:
    """A data set that can only be read from its start. What it says of its own length is not relied on."""

    sized = True

    def __init__(
        self,
        data: Any,
        collate: Collate | None,
        clock: Clock = time.monotonic,
        *,
        like: DataLoader[Any] | None = None,
        loader: LoaderInfo | None = None,
    ) -> None:
        """Arguments: see ``Indexed``.

        Raises:
            WorkloadError: it is empty, or can be read only once.
        """
        self._data = data
        self._collate: Collate = collate or default_collate
        self._like = like
        self.loader = loader
        self._largest: list[object] = []
        """Samples that make a batch as long as any that was seen."""
        self._spans = Spans()
        seen, ended = self._look(clock)
        self._seen = seen
        self.size: int | None = seen if ended else None
        self.notes = self._notes(seen, ended)

    def _look(self, clock: Clock) -> tuple[int, bool]:
        """Number of samples read, and whether that was all."""
        deadline = clock() + MOST_SECONDS
        most: dict[str, tuple[int, int, object]] = {}  # part -> (its size, number of the sample, the sample)
        least: dict[str, int] = {}
        seen, ended = 0, True
        for sample in self._data:
            if seen == MOST_SAMPLES or clock() > deadline:
                ended = False
                break
            self._spans.add(sample)
            sizes = part_sizes(sample)
            for part, size in {**sizes, "in all": sum(sizes.values())}.items():
                if part not in most or size > most[part][0]:
                    most[part] = (size, seen, sample)
                least[part] = min(size, least.get(part, size))
            seen += 1
        if not seen:
            raise empty()
        if ended and not any(True for _ in self._data):
            raise read_once(self._data)
        self.varies = any(most[part][0] > least[part] for part in most)
        if self.varies:
            self._longest = most["in all"][0]
            unequal = [most[part] for part in most if most[part][0] > least[part]]
            ordered = sorted(unequal, key=lambda one: -sum(part_sizes(one[2]).values()))
            self._largest = list({number: sample for _, number, sample in ordered}.values())[:MOST_CANDIDATES]
        return seen, ended

    def over(self, data: Any, like: DataLoader[Any] | None) -> "Streamed":
        """The same for the same data made anew, without another look at it."""
        again = copy.copy(self)
        again._data, again._like = data, like
        return again

    def _notes(self, seen: int, ended: bool) -> tuple[str, ...]:
        said = length(self._data)
        if not ended:
            looked = f"the data set is a stream: batches are its first samples and the longest of the first {seen:,}; "
            return (f"{looked}longer ones that come later were not probed",)
        if said is not None and said != seen:
            return (f"the data set says it has {said:,} samples and gives {seen:,}: the latter count",)
        return ()

    def candidates(self, batch_size: int) -> int:
        return 1

    def batch(self, batch_size: int, candidate: int = 0) -> Counted:
        """The longest samples that were seen, and then the first ones."""
        wanted = batch_size if self.size is None else min(batch_size, self.size)
        return self._collated(islice(chain(self._largest, iter(self._data)), wanted))

    def shorter(self, batch_size: int, share: float) -> Counted:
        """Of the first samples those nearest to the share, larger ones last."""
        wanted = share * self._longest
        first = list(islice(iter(self._data), 2 * batch_size))
        sizes = [sum(part_sizes(sample).values()) for sample in first]
        order = sorted(range(len(first)), key=lambda i: (sizes[i] > wanted, abs(sizes[i] - wanted), i))
        return self._collated(first[i] for i in order[:batch_size])

    def load(self, batch_size: int, batches: int, workers: int, pin_memory: bool) -> DataLoader[Any]:
        return stream_loader(self._data, self._collate, batch_size, workers, pin_memory, self._like)

    def within(self, length: int) -> Within:
        """Those of the first samples are read once more, and a few of them are kept and repeated."""
        lengths = Lengths(self._spans)
        found = keep(islice(iter(self._data), self._seen), lengths, length)
        source = None
        if found.samples:
            source = Indexed(found.samples, self._collate, repeated=True)
            source.size = found.seen if self.size is not None else None
            looked = f"the longest of the first {self._seen:,} samples that are in the length bucket, repeated"
            source.notes = (f"the data set is a stream: batches are {looked}", *lengths.notes)
        return Within(source=source, samples=found.seen, longer=found.longer, longest=found.longest)

    def _collated(self, samples: Iterable[object]) -> Counted:
        taken = list(samples)
        return self._collate(taken), len(taken)


def stream_loader(
    data: Any,
    collate: Collate | None,
    batch_size: int,
    workers: int,
    pin_memory: bool,
    like: DataLoader[Any] | None = None,
) -> DataLoader[Any]:
    """A loader of the whole batches that a stream has."""
    stream = data if isinstance(data, IterableDataset) else _Stream(data)
    return loader_of(stream, collate, workers, pin_memory, like=like, batch_size=batch_size, drop_last=True)
