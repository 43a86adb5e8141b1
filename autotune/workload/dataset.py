"""Batches from the user's data set: the worst one that can be found, since safe means safe for the longest samples."""

import dataclasses
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Protocol

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, default_collate

from autotune.errors import WorkloadError
from autotune.workload.seen import kind_of

_MOST_SAMPLES = 10_000
"""Samples looked at in search of the largest; more would keep the user waiting for little."""
_MOST_SECONDS = 10.0

Collate = Callable[[list[object]], object]


class BatchSource(Protocol):
    """Makes batches of a data set."""

    data: Any
    """What the user made."""
    size: int | None
    """Samples in the data set; None where it does not say."""
    varies: bool
    """Whether samples are known to differ in size."""
    notes: tuple[str, ...]

    def batch(self, batch_size: int) -> object:
        """A batch of ``batch_size`` samples, or of all there are."""
        ...

    def shorter(self, batch_size: int, share: float) -> object:
        """As many samples, of about this share of the largest one's size; only where samples vary."""
        ...


def open_data(
    make_dataset: Callable[[], object], collate: Collate | None, clock: Callable[[], float] = time.monotonic
) -> BatchSource:
    """Make the data set and find its largest samples, if it can be read by index.

    Args:
        make_dataset: the user's.
        collate: the user's; None = PyTorch's default.
        clock: seconds; the look at a slow data set ends after 10 of them.

    Raises:
        WorkloadError: what was made is no data set, or is empty.
    """
    data = _checked(make_dataset())
    collate = collate or default_collate
    size = length(data)
    if size is not None and _has_index(data):
        return _Indexed(data, size, collate, clock)
    return _Streamed(data, size, collate)


def make_loader(
    data: Any, collate: Collate | None, batch_size: int, batches: int, workers: int, pin_memory: bool
) -> DataLoader[Any]:
    """A loader of whole batches as a training has it: in random order, where the data set can be read by index.

    Args:
        data: what the user's ``make_dataset`` returned.
        collate: the user's; None = PyTorch's default.
        batch_size: samples in each batch.
        batches: how many there are; a stream may end before. A small data set is read over and over.
        workers: processes that load; 0 = this one.
        pin_memory: copy batches to page-locked memory.

    Raises:
        WorkloadError: it is no data set, or is empty.
    """
    data = _checked(data)
    sampler = None
    if length(data) is not None and _has_index(data):
        if not length(data):
            raise _empty()
        sampler = RandomSampler(data, replacement=True, num_samples=batch_size * batches)
    elif not isinstance(data, IterableDataset):
        data = _Stream(data)
    return DataLoader(
        data,
        batch_size,
        sampler=sampler,
        num_workers=workers,
        collate_fn=collate,
        pin_memory=pin_memory,
        drop_last=True,
    )


def _has_index(data: object) -> bool:
    return hasattr(data, "__getitem__") and not isinstance(data, IterableDataset)


def _empty() -> WorkloadError:
    return WorkloadError("make_dataset() returned an empty data set", hint="check the path and split it reads")


def length(data: object) -> int | None:
    """``len(data)``; None where it has none."""
    try:
        return len(data)  # type: ignore[arg-type]
    except (TypeError, NotImplementedError):  # what objects and data sets without a length raise
        return None


def _checked(data: Any) -> Any:
    if isinstance(data, DataLoader):
        raise WorkloadError(
            "make_dataset() returned a DataLoader, which has a batch size of its own",
            hint="return the data set itself, and write collate(samples) if the loader has a collate_fn",
        )
    if isinstance(data, Mapping) or (isinstance(data, tuple) and any(isinstance(part, Dataset) for part in data)):
        raise WorkloadError(
            f"make_dataset() returned {kind_of(data)} of {len(data)} parts",
            hint="return one data set: the one to train on",
        )
    if isinstance(data, Iterator):
        raise WorkloadError(
            f"make_dataset() returned {kind_of(data)}, which can be read only once",
            hint="return a list, a torch Dataset, or an object whose __iter__ starts anew",
        )
    if not hasattr(data, "__getitem__") and not isinstance(data, Iterable):
        raise WorkloadError(
            f"make_dataset() returned {kind_of(data)}, which has neither __getitem__ nor __iter__",
            hint="return a list of samples or a torch Dataset",
        )
    return data


class _Indexed:
    """A data set that can be read by index; the largest samples come first."""

    def __init__(self, data: Any, size: int, collate: Collate, clock: Callable[[], float]) -> None:
        if size == 0:
            raise _empty()
        self.data = data
        self._collate = collate
        self.size: int | None = size
        self._sizes = sizes = _look(data, size, clock)
        self._largest = max(sizes.values())
        self._not_seen = [index for index in range(size) if index not in sizes]
        self._order = [*sorted(sizes, key=lambda index: (-sizes[index], index)), *self._not_seen]
        self.varies = min(sizes.values()) < self._largest
        self.notes: tuple[str, ...] = ()
        if len(sizes) < size:
            self.notes = (
                f"looked at {len(sizes):,} of {size:,} samples for the largest ones; a larger sample may exist",
            )

    def batch(self, batch_size: int) -> object:
        """The largest samples, read anew, as a data loader would."""
        return self._read(self._order[:batch_size])

    def shorter(self, batch_size: int, share: float) -> object:
        """The samples nearest to a share of the largest; larger ones last, since one of them makes all as long as it."""
        sizes, wanted = self._sizes, share * self._largest
        nearest = sorted(sizes, key=lambda index: (sizes[index] > wanted, abs(sizes[index] - wanted), index))
        return self._read([*nearest, *self._not_seen][:batch_size])

    def _read(self, indices: list[int]) -> object:
        return self._collate([self.data[index] for index in indices])


class _Stream(IterableDataset[object]):
    """An object that can be iterated over, as PyTorch's loader wants it."""

    def __init__(self, data: Iterable[object]) -> None:
        self._data = data

    def __iter__(self) -> Iterator[object]:
        return iter(self._data)


class _Streamed:
    """A data set that can only be read from its start."""

    def __init__(self, data: Iterable[object], size: int | None, collate: Collate) -> None:
        self.data: Any = data
        self._collate = collate
        self.size = size
        self.varies = False  # nobody looked
        self.notes: tuple[str, ...] = (
            "the data set is a stream: batches are its first samples, and longer ones that come later were not probed",
        )

    def batch(self, batch_size: int) -> object:
        """The first samples.

        Raises:
            WorkloadError: there are none.
        """
        samples = list(islice(iter(self.data), batch_size))
        if not samples:
            raise _empty()
        return self._collate(samples)

    def shorter(self, batch_size: int, share: float) -> object:
        """The first samples, whatever their sizes."""
        return self.batch(batch_size)


def _look(data: Any, size: int, clock: Callable[[], float]) -> dict[int, int]:
    """Index -> number of elements, for all samples or as many as the limits allow, spread evenly over the data set."""
    sizes: dict[int, int] = {}
    deadline = clock() + _MOST_SECONDS
    for index in islice(_spread(size), _MOST_SAMPLES):
        sizes[index] = elements(data[index])
        if clock() > deadline:
            break
    return sizes


def _spread(size: int) -> Iterator[int]:
    """Every index once, in an order of which any beginning is spread evenly (steps of the golden ratio)."""
    step = max(1, round(size * 0.6180339887))
    while math.gcd(step, size) != 1:
        step += 1
    return (number * step % size for number in range(size))


def elements(sample: object) -> int:
    """How large a sample is: numbers in its tensors, arrays and lists, characters in its texts, pixels of its pictures."""
    if isinstance(sample, torch.Tensor):
        return sample.numel()
    if isinstance(sample, str | bytes):
        return len(sample)
    if isinstance(sample, Mapping):
        return sum(elements(part) for part in sample.values())
    if isinstance(sample, tuple | list):
        return sum(elements(part) for part in sample)
    if dataclasses.is_dataclass(sample) and not isinstance(sample, type):
        return sum(elements(getattr(sample, field.name)) for field in dataclasses.fields(sample))
    size = getattr(sample, "size", 1)
    if isinstance(size, int):
        return size
    if isinstance(size, tuple) and all(isinstance(extent, int) for extent in size):
        return math.prod(size)
    return 1
