"""How large samples are, part by part, and a bounded look at a data set. What it means for batches: ``worst``."""

import dataclasses
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import torch

MOST_SAMPLES = 10_000
"""Samples looked at in search of the largest; more would keep the user waiting for little."""
MOST_SECONDS = 10.0

_MOST_PARTS = 16
"""Parts of one sample that are told apart; what comes after them is counted with the last."""

Dimension = tuple[str, int]
"""Name of a part, and the number of one of its dimensions."""


@dataclass(slots=True)
class Spans:
    """Between which bounds the extents of samples are."""

    least: dict[Dimension, int] = field(default_factory=dict)
    most: dict[Dimension, int] = field(default_factory=dict)
    texts: set[str] = field(default_factory=set)
    """Parts that are texts, whose extent is in characters."""

    def add(self, sample: object) -> None:
        """Note the extents of one sample."""
        for part, shape in shapes_of(sample):
            for one in ((part, number) for number in range(len(shape))):
                self.least[one] = min(shape[one[1]], self.least.get(one, shape[one[1]]))
                self.most[one] = max(shape[one[1]], self.most.get(one, shape[one[1]]))
        self.texts |= {part for part, value in _parts("", sample) if isinstance(value, str | bytes)}

    @property
    def differing(self) -> set[Dimension]:
        """Dimensions that have different extents."""
        return {one for one in self.least if self.least[one] < self.most[one]}


@dataclass(slots=True)
class Sizes:
    """What was seen of a data set: the elements of each sample, in all and in each of its parts."""

    totals: dict[int, int] = field(default_factory=dict)
    """Index -> elements."""
    parts: dict[str, dict[int, int]] = field(default_factory=dict)
    """Part (``0``, ``1.boxes``; empty for a sample without parts) -> index -> elements."""
    extents: dict[Dimension, dict[int, int]] = field(default_factory=dict)
    """Dimension -> index -> extent, for parts with more than one, whose elements do not tell it."""
    spans: Spans = field(default_factory=Spans)

    def add(self, index: int, sample: object) -> None:
        """Note the sizes of one sample."""
        found = part_sizes(sample)
        self.totals[index] = sum(found.values())
        for part, size in found.items():
            self.parts.setdefault(part, {})[index] = size
        for part, shape in shapes_of(sample):
            if part in found and shape != (found[part],):
                for number, extent in enumerate(shape):
                    self.extents.setdefault((part, number), {})[index] = extent
        self.spans.add(sample)

    def extent(self, dimension: Dimension) -> dict[int, int]:
        """Index -> extent of a dimension that differs, of the samples that have it."""
        part, number = dimension
        flat = self.parts.get(part, {}) if number == 0 else {}
        return flat | self.extents.get(dimension, {})

    def forget_the_same(self) -> None:
        """Let go of extents that are the same in all samples, so that they take no memory."""
        differing = self.spans.differing
        self.extents = {one: column for one, column in self.extents.items() if one in differing}

    def only(self, indices: Collection[int]) -> "Sizes":
        """What is known of these samples."""
        kept = set(indices)
        parts = {name: _of(kept, column) for name, column in self.parts.items()}
        return Sizes(_of(kept, self.totals), {name: column for name, column in parts.items() if column})

    @property
    def vary(self) -> bool:
        """Whether samples differ in size."""
        return any(_differ(sizes, len(self.totals)) for sizes in self.parts.values())

    @property
    def varying(self) -> list[dict[int, int]]:
        """The parts that differ from sample to sample; two that are as large as each other everywhere count once."""
        found: list[dict[int, int]] = []
        for sizes in self.parts.values():
            if _differ(sizes, len(self.totals)) and sizes not in found:
                found.append(sizes)
        return found

    def agrees(self, data: Any, length: int) -> bool:
        """Whether a data set made anew is the same as far as a few samples tell: the largest, and some in between."""
        if len(self.totals) > length:
            return False
        largest = max(self.totals, key=lambda index: self.totals[index])
        checked = {largest, *list(self.totals)[:4]}
        return all(sum(part_sizes(data[index]).values()) == self.totals[index] for index in checked)


def _differ(sizes: dict[int, int], samples: int) -> bool:
    return len(sizes) < samples or min(sizes.values()) < max(sizes.values())


def _of(kept: set[int], column: dict[int, int]) -> dict[int, int]:
    return {index: value for index, value in column.items() if index in kept}


def look(data: Any, indices: Sequence[int], clock: Callable[[], float]) -> Sizes:
    """The sizes of all these samples or of as many as the limits allow, spread evenly over them."""
    sizes = Sizes()
    deadline = clock() + MOST_SECONDS
    for position in islice(_spread(len(indices)), MOST_SAMPLES):
        sizes.add(indices[position], data[indices[position]])
        if clock() > deadline:
            break
    sizes.forget_the_same()
    return sizes


def _spread(size: int) -> Iterator[int]:
    """Every position once, in an order of which any beginning is spread evenly (steps of the golden ratio)."""
    step = max(1, round(size * 0.6180339887))
    while math.gcd(step, size) != 1:
        step += 1
    return (number * step % size for number in range(size))


def part_sizes(sample: object) -> dict[str, int]:
    """Elements of each part of a sample: entries of tuples, mappings and data classes, those within them included.

    A list is one part, of so many entries: boxes of a picture, words of a text.
    """
    found: dict[str, int] = {}
    for name, part in _parts("", sample):
        if name not in found and len(found) == _MOST_PARTS:
            name = list(found)[-1]
        found[name] = found.get(name, 0) + elements(part)
    return found


def _parts(name: str, part: object) -> Iterator[tuple[str, object]]:
    inside: Iterable[tuple[object, object]]
    if isinstance(part, Mapping):
        inside = part.items()
    elif isinstance(part, tuple):
        inside = enumerate(part)
    elif dataclasses.is_dataclass(part) and not isinstance(part, type):
        inside = ((each.name, getattr(part, each.name)) for each in dataclasses.fields(part))
    else:
        yield name, part
        return
    for key, value in inside:
        yield from _parts(f"{name}.{key}" if name else str(key), value)


def shapes_of(sample: object) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Extents of each part of a sample; a list and a text have one."""
    return ((name, _shape(part)) for name, part in _parts("", sample))


def _shape(part: object) -> tuple[int, ...]:
    if isinstance(part, str | bytes | list):
        return (len(part),)
    for name in ("shape", "size"):  # of tensors and arrays, of pictures
        found = getattr(part, name, None)
        if isinstance(found, tuple) and all(isinstance(extent, int) for extent in found):
            return tuple(found)
    return ()


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
        return sum(elements(getattr(sample, each.name)) for each in dataclasses.fields(sample))
    size = getattr(sample, "size", 1)
    if isinstance(size, int):
        return size
    if isinstance(size, tuple) and all(isinstance(extent, int) for extent in size):
        return math.prod(size)
    return 1
