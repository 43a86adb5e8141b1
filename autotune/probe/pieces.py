"""The same samples for both sides of a comparison, also where one takes them whole and the other in micro-batches."""

import copy
import dataclasses
import math
from collections.abc import Mapping, MutableMapping
from typing import Any

import torch

from autotune.apply import Unsupported
from autotune.workload.batch import replace_leaves, to_device
from autotune.workload.task import Workload

_MOST_PIECES = 4
"""More micro-batches a step show nothing that these do not, and may not fit as one batch."""


def pieces(reference: int, candidate: int) -> tuple[int, int]:
    """Micro-batches a step to compare with, for as many as reference and candidate are to train with."""
    if reference == candidate:
        both = min(reference, 2)
        return both, both
    many = min(_MOST_PIECES, math.ceil(max(reference, candidate) / min(reference, candidate)))
    return (1, many) if candidate > reference else (many, 1)


class Samples:
    """Makes the micro-batches of one step after the other, as the reference and as the candidate take them."""

    def __init__(self, workload: Workload, batch_size: int, accumulate: tuple[int, int]) -> None:
        """
        Args:
            workload: makes the batches.
            batch_size: of the smallest micro-batches.
            accumulate: micro-batches a step of the reference, and of the candidate; one of them 1, or both the same.
        """
        self._workload = workload
        self._accumulate = accumulate
        self.cuts = accumulate[0] != accumulate[1]
        """Whether the two take them in different pieces."""
        self._size = batch_size * max(accumulate) if self.cuts else batch_size
        """Of the batches that are made."""
        self._like: dict[int, object] = {}
        self.observed: int | None = None
        """Samples really in the last batch, None where it holds no tensor."""

    def step(self) -> tuple[list[object], list[object]]:
        """Reference's and candidate's micro-batches of the next step.

        Raises:
            Unsupported: the batch cannot be cut, or the data has too few samples for it.
        """
        if not self.cuts:
            both = [self._made(self._size) for _ in range(self._accumulate[0])]
            return both, both
        whole = self._made(self._size)
        if self.observed is not None and self.observed < self._size:
            raise Unsupported(
                f"accumulation is compared on one batch of {self._size} samples, and the data has {self.observed}"
            )
        reference, candidate = (self._cut(whole, parts) for parts in self._accumulate)
        return reference, candidate

    def _made(self, size: int) -> object:
        batch, self.observed = self._workload.make_counted(size)
        return batch

    def _cut(self, whole: object, parts: int) -> list[object]:
        if parts == 1:
            return [whole]
        size = self._size // parts
        if size not in self._like:
            self._like[size] = self._workload.make_batch(size)
        return cut(whole, self._like[size], self._size, parts)


def fresh(batch: object, device: torch.device) -> object:
    """A copy of the batch on the device: what a step does to it is not seen by the next one."""
    return to_device(replace_leaves(batch, lambda leaf: callable(getattr(leaf, "to", None)), _copied), device)


def _copied(leaf: Any) -> object:
    if not isinstance(leaf, torch.Tensor):
        return copy.deepcopy(leaf)
    return leaf.detach().clone().requires_grad_(leaf.requires_grad)


def cut(batch: object, like: object, samples: int, parts: int) -> list[object]:
    """The batch in ``parts`` batches of ``samples // parts`` samples each.

    What follows the number of samples is told by comparing with a batch of another size; what does not, such as a
    position mask, is in every part.

    Args:
        batch: of ``samples`` samples.
        like: of the same maker, with ``samples // parts`` samples.
        samples: a multiple of ``parts``.
        parts: more than one.

    Raises:
        Unsupported: its form does not tell where one sample ends and the next begins.
    """
    size = samples // parts
    return [_part(batch, like, (samples, size), slice(size * i, size * (i + 1))) for i in range(parts)]


def _part(batch: Any, like: Any, sizes: tuple[int, int], where: slice) -> Any:
    """One part; ``sizes`` are the samples of the batch and of the one it is compared with."""
    if type(batch) is not type(like):
        raise _no_samples(batch)
    if isinstance(batch, torch.Tensor) or (hasattr(batch, "shape") and hasattr(batch, "dtype")):
        return _array(batch, like, sizes, where)
    if isinstance(batch, Mapping) and batch.keys() == like.keys():
        parts = {key: _part(value, like[key], sizes, where) for key, value in batch.items()}
        if not isinstance(batch, MutableMapping):
            return parts
        made = copy.copy(batch)
        made.update(parts)
        return made
    if isinstance(batch, tuple | list):
        return _sequence(batch, like, sizes, where)
    if dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        made_anew: Any = copy.copy(batch)
        for field in dataclasses.fields(batch):
            part = _part(getattr(batch, field.name), getattr(like, field.name), sizes, where)
            object.__setattr__(made_anew, field.name, part)
        return made_anew
    if isinstance(batch, int) and not isinstance(batch, bool) and (batch, like) == sizes:
        return sizes[1]  # says how many samples there are
    if batch is None or (isinstance(batch, bool | int | float | str | bytes) and batch == like):
        return batch
    raise _no_samples(batch)


def _array(batch: Any, like: Any, sizes: tuple[int, int], where: slice) -> Any:
    lengths = tuple(len(array) if array.ndim else None for array in (batch, like))
    if lengths == sizes:
        return batch[where]
    if lengths[0] == lengths[1]:
        return batch
    raise Unsupported(
        f"a batch of {sizes[0]} samples has a tensor with {lengths[0]} rows, and one of {sizes[1]} has {lengths[1]}:"
        " which rows belong to which sample cannot be told, nor whether accumulation trains the same"
    )


def _sequence(batch: Any, like: Any, sizes: tuple[int, int], where: slice) -> Any:
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(_part(a, b, sizes, where) for a, b in zip(batch, like, strict=True)))
    if (len(batch), len(like)) == sizes:
        return batch[where]  # of samples
    if len(batch) != len(like):
        raise _no_samples(batch)
    return type(batch)(_part(a, b, sizes, where) for a, b in zip(batch, like, strict=True))


def _no_samples(part: object) -> Unsupported:
    return Unsupported(
        f"the batch has a part of type {type(part).__name__} that cannot be cut into samples, so nothing shows that"
        " accumulation trains the same"
    )
