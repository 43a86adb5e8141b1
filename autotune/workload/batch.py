"""Batches of any nesting: tensors, tuples, named tuples, lists, mappings, data classes, and objects that know ``.to``."""

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any, TypeAlias, cast

import torch
from torch.nn.utils.rnn import PackedSequence

_SHOWN = 8
"""Different entries of one container that a description names."""


def to_device(batch: object, device: torch.device | str) -> object:
    """The same batch with its tensors on ``device``; what is neither tensor nor container stays as it is."""
    return replace_leaves(batch, lambda leaf: callable(getattr(leaf, "to", None)), lambda leaf: leaf.to(device))


def replace_leaves(batch: object, applies: Callable[[object], bool], change: Callable[[Any], object]) -> object:
    """A batch of the same form in which ``change`` was called on the outermost parts where ``applies`` is true.

    No inner function calls itself here: that would be a reference cycle, which keeps what it was called with (a batch)
    until the garbage collector comes by.
    """

    def again(part: object) -> Any:
        return replace_leaves(part, applies, change)

    part: Any = batch
    if applies(part):
        return change(part)
    if isinstance(part, tuple):
        items = [again(item) for item in part]
        return type(part)(*items) if hasattr(part, "_fields") else type(part)(items)
    if isinstance(part, list | MutableMapping):
        changed: Any = copy.copy(part)  # keeps the kind, attributes, a default factory
        for key, value in enumerate(part) if isinstance(part, list) else part.items():
            changed[key] = again(value)  # one by one: outputs of transformers' models refuse update()
        return changed
    if isinstance(part, Mapping):
        return {key: again(value) for key, value in part.items()}
    if dataclasses.is_dataclass(part) and not isinstance(part, type):
        changed = copy.copy(cast(Any, part))
        for field in dataclasses.fields(part):
            object.__setattr__(changed, field.name, again(getattr(part, field.name)))  # also on frozen ones
        return changed
    return part


def map_tensors(batch: object, change: Callable[[torch.Tensor], object]) -> object:
    """A batch of the same form with its tensors changed."""
    return replace_leaves(batch, lambda leaf: isinstance(leaf, torch.Tensor), change)


def is_moved(batch: object) -> bool:
    """Whether ``to_device`` finds anything in the batch to move."""
    found = []

    def note(leaf: object) -> object:
        found.append(True)
        return leaf

    replace_leaves(batch, lambda leaf: callable(getattr(leaf, "to", None)), note)
    return bool(found)


def tensors(batch: object) -> list[torch.Tensor]:
    """All tensors of a batch, in its order."""
    if isinstance(batch, torch.Tensor):
        return [batch]
    return [tensor for _, part in _entries(batch) for tensor in tensors(part)]


def first_length(batch: object) -> int:
    """Length of the first tensor that has one; 1 where none has."""
    return next((shape[0] for shape in shapes(batch) if shape), 1)


def shapes(batch: object) -> list[tuple[int, ...]]:
    """Of all tensors of a batch; of a nested one, whose other dimensions may differ, the first alone."""
    return [(tensor.size(0),) if tensor.is_nested else tuple(tensor.shape) for tensor in tensors(batch)]


def batch_bytes(batch: object) -> int:
    """Bytes that the tensors of a batch take once they are on a device."""
    return sum(part.numel() * part.element_size() for tensor in tensors(batch) for part in strided(tensor))


def strided(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The tensors with memory of their own that a sparse or jagged one consists of; any other is one itself."""
    if tensor.layout is torch.sparse_coo:
        return [tensor._indices(), tensor._values()]  # also of a gradient, whose indices may come twice
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    jagged: Any = tensor
    return [jagged.offsets(), jagged.values()] if tensor.layout is torch.jagged else [tensor]


def describe(batch: object) -> str:
    """Form, types and shapes in words: ``dict(input_ids: int64[8, 1024], labels: int64[8, 1024])``."""
    if isinstance(batch, torch.Tensor):
        shape = [*shapes(batch)[0], "…"] if batch.is_nested else batch.shape
        return f"{_short(batch.dtype)}[{', '.join(str(length) for length in shape)}]"
    if not _is_container(batch):
        return _value_in_words(batch)
    runs: list[tuple[str, int]] = []
    for label, part in _entries(batch):
        text = f"{label}: {describe(part)}" if label else describe(part)
        if runs and runs[-1][0] == text:
            runs[-1] = (text, runs[-1][1] + 1)
        else:
            runs.append((text, 1))
    shown = [text if count == 1 else f"{count} x {text}" for text, count in runs[:_SHOWN]]
    if len(runs) > _SHOWN:
        shown.append(f"{sum(count for _, count in runs[_SHOWN:])} more")
    return f"{type(batch).__name__}({', '.join(shown)})"


def observed_batch(
    batch: object, asked: int, reference: tuple[object, int] | None = None, dim: int | None = None
) -> int | None:
    """How many samples a batch really has, given how many were asked for; None if it holds no tensor at all.

    Looks, in this order, for ``asked`` as the leading dimension of a tensor, as the length of a list of samples, for
    a vector as long as every tensor (labels), for ``asked`` as another dimension (time first), and as a divisor of a
    leading dimension (samples packed into one); failing all, the leading dimension of the first tensor counts. A
    dimension may have the value by accident: 128 features when 128 samples were asked for and 100 came.

    Args:
        batch: what the batch maker returned.
        asked: the batch size it was called with.
        reference: (another batch of the same maker, the different size it was made with). Settles accidents: the
            dimensions that follow the size are known from comparing both.
        dim: the dimension that counts samples, if the user says so; that of the first tensor that has it counts.
    """
    found = shapes(batch)
    if not found:
        return None
    if dim is not None:
        return next((shape[dim] for shape in found if len(shape) > dim), None)
    if reference is not None and reference[1] != asked:
        grown = grown_batch(extents(batch), asked, extents(reference[0]), reference[1])
        if grown is not None:
            return grown
    leading = [shape[0] for shape in found if shape]
    if asked in leading or asked in _list_lengths(batch):
        return asked
    packed = any(length > 0 and length % asked == 0 for length in leading)
    labelled = len(leading) > 1 and len(set(leading)) == 1 and any(len(shape) == 1 for shape in found)
    if packed or (not labelled and any(asked in shape[1:] for shape in found)):
        return asked
    return leading[0] if leading else None


Extents: TypeAlias = Sequence[Sequence[int]]
"""Of a batch: the lengths of its lists of samples, then the shape of each tensor."""


def grown_batch(batch: Extents, asked: int, other: Extents, other_size: int) -> int | None:
    """Number of samples by the first extents that are in proportion to the size in ``other`` and differ from it here."""
    counted = []
    for here, there in zip(batch, other, strict=False):
        for length, known in zip(here, there, strict=False):
            each, rest = divmod(known, other_size)
            if length != known and each > 0 and rest == 0 and length % each == 0:
                counted.append(length // each)
    return asked if asked in counted else next(iter(counted), None)


def extents(batch: object) -> list[tuple[int, ...]]:
    """All that may tell how many samples a batch has."""
    return [tuple(_list_lengths(batch)), *shapes(batch)]


def _list_lengths(batch: object) -> list[int]:
    """Lengths of the batch itself and of its direct parts where they are lists of samples, all of one kind, or packed ones."""
    parts = [batch, *(part for _, part in _entries(batch))]
    lists = [len(part) for part in parts if isinstance(part, list) and len({_kind(item) for item in part}) == 1]
    return lists + [int(part.batch_sizes[0]) for part in parts if isinstance(part, PackedSequence)]


def _kind(item: object) -> object:
    """Inputs and labels in one list differ in this; samples of a list do not."""
    return (item.dtype, item.dim()) if isinstance(item, torch.Tensor) else type(item)


def _is_container(part: object) -> bool:
    kinds = isinstance(part, tuple | list | Mapping) or dataclasses.is_dataclass(part)
    return (kinds or _is_object_with_to(part)) and not isinstance(part, type)


def _is_object_with_to(part: object) -> bool:
    return callable(getattr(part, "to", None)) and hasattr(part, "__dict__") and not isinstance(part, torch.nn.Module)


def _entries(part: object) -> Iterator[tuple[str, object]]:
    """(label, part) of a container; nothing for anything else."""
    if not _is_container(part) or isinstance(part, torch.Tensor):
        return
    if isinstance(part, Mapping):
        yield from ((str(key), value) for key, value in part.items())
    elif isinstance(part, tuple) and hasattr(part, "_fields"):
        yield from zip(part._fields, part, strict=True)
    elif isinstance(part, tuple | list):
        yield from (("", item) for item in part)
    elif dataclasses.is_dataclass(part):
        yield from ((field.name, getattr(part, field.name)) for field in dataclasses.fields(part))
    else:
        yield from vars(part).items()


def _value_in_words(value: object) -> str:
    if hasattr(value, "dtype") and hasattr(value, "shape"):  # an array
        return f"{type(value).__name__}({value.dtype}{list(value.shape)})"
    return "None" if value is None else type(value).__name__


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
