"""PyTorch's DataLoader: what the user's own consists of, and loaders made of the same parts with other workers."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    WeightedRandomSampler,
)

from autotune.model import LoaderInfo

Collate = Callable[[list[Any]], object]

_WHOLE = (RandomSampler, SequentialSampler, DistributedSampler, WeightedRandomSampler)
"""Samplers that reach every sample in one epoch or another."""


def info(loader: DataLoader[Any]) -> LoaderInfo:
    """What matters of the user's loader beside its batches."""
    return LoaderInfo(
        workers=loader.num_workers,
        pin_memory=bool(loader.pin_memory),
        drop_last=bool(loader.drop_last or getattr(loader.batch_sampler, "drop_last", False)),
    )


def is_plain(loader: DataLoader[Any]) -> bool:
    """Whether it iterates as PyTorch's own does, so that one made of its parts gives the same batches."""
    return type(loader).__iter__ is DataLoader.__iter__


def batch_size_of(loader: DataLoader[Any]) -> int | None:
    """Samples in each whole batch; None where its sampler or its data set decides."""
    if isinstance(loader.dataset, IterableDataset):
        return loader.batch_size
    sampler = loader.batch_sampler
    return sampler.batch_size if type(sampler) is BatchSampler else None


def indices_of(loader: DataLoader[Any], size: int) -> Sequence[int]:
    """The samples that can be in a batch; all of the data set unless its sampler leaves some out."""
    if isinstance(loader.sampler, _WHOLE):
        return range(size)
    found = list(islice((int(index) for index in loader.sampler), 2 * size + 1))
    if len(found) > 2 * size:  # it goes round and round, as samplers without epochs do
        return range(size)
    return list(dict.fromkeys(found))


class RandomBatches:
    """A batch sampler: the same batches first, then random ones; a small data set is read over and over."""

    def __init__(self, first: list[list[int]], indices: Sequence[int], batch_size: int, batches: int) -> None:
        self._first = first[:batches]
        self._indices = indices
        self._batch_size = batch_size
        self._more = batches - len(self._first)

    def __iter__(self) -> Iterator[list[int]]:
        yield from self._first
        for _ in range(self._more):
            drawn = torch.randint(len(self._indices), (self._batch_size,)).tolist()
            yield [self._indices[position] for position in drawn]


class Repeated:
    """A batch sampler: so many batches of the user's own, from as many epochs as that takes, the worst first."""

    def __init__(self, first: list[list[int]], sampler: Iterable[list[int]], batches: int) -> None:
        self._first = first[:batches]
        self._sampler = sampler
        self._more = batches - len(self._first)

    def __iter__(self) -> Iterator[list[int]]:
        yield from self._first
        left = self._more
        while left > 0:
            before = left
            for indices in self._sampler:
                if left == 0:
                    return
                left -= 1
                yield indices
            if left == before:  # it gives nothing
                return


def loader_of(
    data: Any,
    collate: Collate | None,
    workers: int,
    pin_memory: bool,
    *,
    like: DataLoader[Any] | None = None,
    **batching: Any,
) -> DataLoader[Any]:
    """A loader of this data set with so many workers.

    Args:
        data: the data set.
        collate: the user's; None = PyTorch's default.
        workers: processes that load; 0 = this one.
        pin_memory: copy batches to page-locked memory.
        like: the user's own loader, whose other arguments are taken over.
        batching: what says how batches are made: ``batch_sampler``, or ``batch_size`` with what belongs to it.
    """
    more: dict[str, Any] = {}
    if like is not None:
        more["worker_init_fn"] = like.worker_init_fn
        if workers:
            more |= {"timeout": like.timeout, "multiprocessing_context": like.multiprocessing_context}
            more["prefetch_factor"] = like.prefetch_factor
    return DataLoader(data, num_workers=workers, collate_fn=collate, pin_memory=pin_memory, **batching, **more)


def remade(
    loader: DataLoader[Any], workers: int, pin_memory: bool, batch_sampler: object | None = None
) -> DataLoader[Any]:
    """The user's loader with other workers, and with another batch sampler where one is given."""
    batching: dict[str, Any]
    if batch_sampler is not None:
        batching = {"batch_sampler": batch_sampler}
    elif isinstance(loader.dataset, IterableDataset):
        batching = {"batch_size": loader.batch_size, "drop_last": loader.drop_last}
    elif loader.batch_sampler is not None:
        batching = {"batch_sampler": loader.batch_sampler}
    else:  # the data set's items are batches
        batching = {"batch_size": None, "sampler": loader.sampler}
    return loader_of(loader.dataset, loader.collate_fn, workers, pin_memory, like=loader, **batching)
