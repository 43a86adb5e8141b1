"""What ``make_dataset`` or ``make_loader`` returned -> a source of batches, whatever form the user's data has."""

import copy
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from autotune.errors import WorkloadError
from autotune.workload.dataloader import Collate, batch_size_of, indices_of, info, loader_of
from autotune.workload.dataset import BatchSource, Clock, Indexed, Streamed, checked, has_index, length
from autotune.workload.per_size import PerSize
from autotune.workload.seen import kind_of


def open_data(
    make_dataset: Callable[[], object], collate: Collate | None, clock: Clock = time.monotonic
) -> BatchSource:
    """Make the data set and look for its largest samples.

    Args:
        make_dataset: the user's; may return a data loader, whose parts are then used.
        collate: the user's; None = the loader's, else PyTorch's default.
        clock: seconds; the look at a slow data set ends after 10 of them.

    Raises:
        WorkloadError: what was made is no data set, is empty, or is a loader whose batches have a size of their own.
    """
    data = make_dataset()
    if isinstance(data, DataLoader):
        return _of_loader(data, collate, clock)
    data = checked(data)
    return Indexed(data, collate, clock) if has_index(data) else Streamed(data, collate, clock)


def _of_loader(loader: DataLoader[Any], collate: Collate | None, clock: Clock) -> BatchSource:
    """The parts of a loader, its batch size left out."""
    data, collate = loader.dataset, collate or loader.collate_fn
    if loader.batch_size is None and loader.batch_sampler is None:
        raise WorkloadError(
            "make_dataset() returned a DataLoader with batch_size=None: the items of its data set are batches already",
            hint="write make_loader(batch_size), which returns the loader with batches of that size",
        )
    if isinstance(data, IterableDataset):
        return Streamed(data, collate, clock, like=loader, loader=info(loader))
    if batch_size_of(loader) is not None:
        size = length(loader.sampler)
        indices = indices_of(loader, len(data))  # type: ignore[arg-type]
        described = info(loader)
        return Indexed(data, collate, clock, indices=indices, size=size, like=loader, loader=described)
    sampler: Any = loader.batch_sampler
    if not isinstance(getattr(sampler, "batch_size", None), int):
        raise WorkloadError(
            f"make_dataset() returned a DataLoader with {kind_of(sampler)}, which has no batch_size to change",
            hint="write make_loader(batch_size) instead: it returns the loader for that size, or token budget",
        )

    def make(batch_size: int) -> DataLoader[Any]:
        changed = copy.copy(sampler)
        changed.batch_size = batch_size
        return loader_of(data, collate, loader.num_workers, False, like=loader, batch_sampler=changed)

    return PerSize(make, clock)


def open_loader(make_loader: Callable[[int], object], clock: Clock = time.monotonic) -> BatchSource:
    """A source of the batches that the user's loaders give, made for each size by itself.

    Raises:
        WorkloadError: what was made for a small size is no loader.
    """
    return PerSize(lambda batch_size: checked_loader(make_loader(batch_size), batch_size), clock)


@contextmanager
def one_thread() -> Iterator[None]:
    """Read samples as loader workers do, in one thread: a process whose pool of threads was used cannot be forked."""
    threads = torch.get_num_threads()
    if threads == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def checked_loader(loader: Any, batch_size: int) -> Iterable[Any]:
    """The loader, if it is one.

    Raises:
        WorkloadError: it is something else.
    """
    if isinstance(loader, DataLoader):
        return loader
    returned = f"make_loader({batch_size}) returned {'None' if loader is None else kind_of(loader)}"
    if loader is None:
        raise WorkloadError(returned, hint="end it with `return loader`")
    if isinstance(loader, Dataset):
        raise WorkloadError(
            f"{returned}, a data set",
            hint="return its batches: DataLoader(data, batch_size=batch_size), or name the function make_dataset",
        )
    if isinstance(loader, torch.Tensor | Mapping | str | bytes) or not isinstance(loader, Iterable):
        raise WorkloadError(
            f"{returned}, which is no iterable of batches", hint="return a DataLoader, a list of batches or a generator"
        )
    return loader


def size_of(data: object) -> int | None:
    """Samples in what ``make_dataset`` returned; None where it does not say, or is a stream, which may say anything."""
    data = data.dataset if isinstance(data, DataLoader) else data
    return length(data) if has_index(data) else None
