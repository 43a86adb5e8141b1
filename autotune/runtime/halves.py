"""Cutting a batch in two by its samples, and counting them."""

import copy
import dataclasses
from collections.abc import Mapping, MutableMapping
from typing import Any

import torch

from autotune.workload.batch import describe, tensors


class NotCut(Exception):
    """Raised inside of the room: the batch's form does not tell where a sample ends; the message says why."""


def count_samples(batch: object) -> int:
    """Samples of a batch: the length of the first dimension of its first tensor that has one.

    Raises:
        NotCut: it holds no such tensor.
    """
    for tensor in tensors(batch):
        if tensor.dim() > 0:
            return tensor.size(0)
    raise NotCut(f"the batch is {describe(batch)}, in which samples cannot be counted")


def own(batch: Any) -> Any:
    """The batch for one attempt: loss functions take entries out of it (``batch.pop("labels")``), and the next attempt
    needs them, too. Containers are copied, tensors and lists within mappings and lists are not."""
    if isinstance(batch, torch.Tensor):
        return batch
    if type(batch) is tuple:
        return tuple([own(item) for item in batch])
    if isinstance(batch, MutableMapping | list):
        copied = copy.copy(batch)  # keeps the kind, and a default factory
        for key, value in enumerate(batch) if isinstance(batch, list) else batch.items():
            if isinstance(value, MutableMapping | tuple):  # lists in it may be long, and are seldom taken from
                copied[key] = own(value)
        return copied
    return batch


def halve(batch: object) -> tuple[object, object] | None:
    """The batch as two of the same form, the first with the odd sample; None where it has a single sample.

    Cut are all tensors (views, nothing is copied) and lists whose length is the number of samples. A batch that is itself a
    list with tensors is no such list: PyTorch's loader puts an entry for each input into it, not for each sample. What has one
    row, no dimension or is no tensor belongs to every sample and is in both.

    Raises:
        NotCut: a tensor has another number of rows.
    """
    samples = count_samples(batch)
    if samples < 2:
        return None
    middle = (samples + 1) // 2
    first, second = slice(0, middle), slice(middle, samples)
    if isinstance(batch, list) and any(isinstance(item, torch.Tensor) for item in batch):
        return [_part(item, samples, first) for item in batch], [_part(item, samples, second) for item in batch]
    return _part(batch, samples, first), _part(batch, samples, second)


def _part(part: Any, samples: int, where: slice) -> Any:
    if isinstance(part, torch.Tensor):
        return _rows(part, samples, where)
    if isinstance(part, Mapping):
        parts = {key: _part(value, samples, where) for key, value in part.items()}
        if not isinstance(part, MutableMapping):
            return parts
        made = copy.copy(part)  # keeps the kind, and a default factory
        for key, value in parts.items():  # a ModelOutput of transformers takes items, and refuses update()
            made[key] = value
        return made
    if isinstance(part, tuple):
        items = [_part(item, samples, where) for item in part]
        return type(part)(*items) if hasattr(part, "_fields") else type(part)(items)
    if isinstance(part, list):
        return part[where] if len(part) == samples else [_part(item, samples, where) for item in part]
    if dataclasses.is_dataclass(part) and not isinstance(part, type):
        anew: Any = copy.copy(part)
        for field in dataclasses.fields(part):
            object.__setattr__(anew, field.name, _part(getattr(part, field.name), samples, where))  # also frozen ones
        return anew
    if part is None or isinstance(part, bool | int | float | str | bytes):
        return part
    raise NotCut(f"the batch has a part of type {type(part).__name__}, which cannot be cut into samples")


def _rows(tensor: torch.Tensor, samples: int, where: slice) -> torch.Tensor:
    if tensor.dim() == 0 or tensor.size(0) == 1:
        return tensor
    if tensor.size(0) != samples:
        raise NotCut(
            f"a batch of {samples} samples has a tensor with {tensor.size(0)} rows, and which of them belong to a sample"
            " cannot be told"
        )
    try:
        return tensor[where]
    except RuntimeError as error:  # sparse and nested ones
        raise NotCut(f"the batch has a tensor of layout {tensor.layout}, of which PyTorch gives no part") from error
