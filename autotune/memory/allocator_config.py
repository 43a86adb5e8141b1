"""The options of PyTorch's caching allocator as it reads them from ``PYTORCH_CUDA_ALLOC_CONF``, and their meaning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import overload

from autotune.units import MIB

BLOCK_BYTES = 512
"""Every block is a multiple of this."""
SMALL_MAX_BYTES = MIB
"""Larger requests go to the large pool."""
SMALL_SEGMENT_BYTES = 2 * MIB
"""What the small pool asks the driver for; with expandable segments its page."""
_OWN_SEGMENT_BYTES = 10 * MIB
"""From this size on a large request gets a segment of its own size when nothing free fits it."""
_SEGMENT_STEP_BYTES = 2 * MIB
_DIVISION_INTERVALS = 16
"""``roundup_power2_divisions`` has one entry per power of two from 1 MiB to 32 GiB; the outer ones reach beyond."""
_READ = frozenset(
    {
        "backend",
        "expandable_segments",
        "garbage_collection_threshold",
        "large_segment_size_mb",
        "max_non_split_rounding_mb",
        "max_split_size_mb",
        "roundup_power2_divisions",
        "throw_on_cudamalloc_oom",
    }
)
_WITHOUT_EFFECT = frozenset(
    {
        "graph_capture_record_stream_reuse",
        "pinned_num_register_threads",
        "pinned_reserve_segment_size_mb",
        "pinned_use_background_threads",
        "pinned_use_cuda_host_register",
        "pinned_use_hip_host_register",
        "release_lock_on_cudamalloc",
        "release_lock_on_hipmalloc",
    }
)
"""Options about locks, host memory or graph capture: where device memory comes from does not depend on them."""


class Unreplayable(ValueError):
    """Raised by ``AllocatorConfig.parse``: memory under these options cannot be predicted here, only tried out."""


@dataclass(frozen=True, slots=True)
class AllocatorConfig:
    """What the allocator does, decided by its options. The defaults are PyTorch's."""

    expandable_segments: bool = False
    max_split_bytes: int | None = None
    """Blocks of this size and larger are never split. None = all may be."""
    max_non_split_rounding_bytes: int = 20 * MIB
    """How much larger than the request a block that is never split may be, less one byte."""
    garbage_collection_threshold: float = 0.0
    """Fraction of the cap above which idle segments are given back before a new one is asked for. 0 = never."""
    roundup_power2_divisions: tuple[int, ...] = ()
    """Sixteen numbers of steps between two powers of two, from 1 MiB up. Empty = no such rounding."""
    large_segment_bytes: int = 20 * MIB
    """Segment for requests of the large pool below 10 MiB; with expandable segments the large pool's page."""

    @classmethod
    def parse(cls, text: str) -> AllocatorConfig:
        """Read PyTorch's own syntax, for example ``expandable_segments:True,max_split_size_mb:128``; empty = defaults.

        Raises:
            Unreplayable: another allocator (``backend:cudaMallocAsync``), an option not known here, or a value that
                PyTorch itself refuses.
        """
        values = dict(pairs(text))
        for name in values:
            if name not in _READ and name not in _WITHOUT_EFFECT:
                raise Unreplayable(f"{name!r} is no allocator option that can be replayed")
        if values.get("backend", "native") != "native":
            raise Unreplayable(f"backend:{values['backend']} manages memory in another way than the native allocator")
        if _flag(values, "throw_on_cudamalloc_oom"):
            raise Unreplayable("throw_on_cudamalloc_oom gives up where a replay would retry")
        large_bytes = _megabytes(values, "large_segment_size_mb", above=_OWN_SEGMENT_BYTES, otherwise=20 * MIB)
        return cls(
            expandable_segments=_flag(values, "expandable_segments"),
            max_split_bytes=_megabytes(values, "max_split_size_mb", above=large_bytes - 1, otherwise=None),
            max_non_split_rounding_bytes=_megabytes(
                values, "max_non_split_rounding_mb", above=large_bytes - 1, otherwise=20 * MIB
            ),
            garbage_collection_threshold=_threshold(values.get("garbage_collection_threshold")),
            roundup_power2_divisions=_divisions(values.get("roundup_power2_divisions")),
            large_segment_bytes=large_bytes,
        )

    def rounded(self, size: int) -> int:
        """Bytes of the block that a request of ``size`` bytes looks for."""
        if self.roundup_power2_divisions and size >= BLOCK_BYTES:
            interval = min(max(size.bit_length() - MIB.bit_length(), 0), _DIVISION_INTERVALS - 1)
            divisions = self.roundup_power2_divisions[interval]
            if divisions > 1 and size > BLOCK_BYTES * divisions:
                step = (1 << size.bit_length() - 1) // divisions
                return -(-size // step) * step
        return max(BLOCK_BYTES, -(-size // BLOCK_BYTES) * BLOCK_BYTES)

    def segment_bytes(self, rounded: int) -> int:
        """Bytes asked of the driver, or of the cap, when no free block serves ``rounded`` bytes."""
        if rounded <= SMALL_MAX_BYTES:
            return SMALL_SEGMENT_BYTES
        if rounded < _OWN_SEGMENT_BYTES:
            return self.large_segment_bytes
        return -(-rounded // _SEGMENT_STEP_BYTES) * _SEGMENT_STEP_BYTES


def pairs(text: str) -> Iterator[tuple[str, str]]:
    """Names and values; a value in brackets may hold commas and colons. Blanks mean nothing.

    Raises:
        Unreplayable: the text is not written so.
    """
    rest = "".join(text.split())
    while rest:
        name, _, rest = rest.partition(":")
        closed = rest.find("]") + 1 if rest.startswith("[") else 0
        more, _, behind = rest[closed:].partition(",")
        value, rest = rest[:closed] + more, behind
        if not (name and value) or "," in name:
            raise Unreplayable(f"{text!r} is not written as option:value,option:value")
        yield name, value


def _flag(values: Mapping[str, str], name: str) -> bool:
    value = values.get(name, "False")
    if value not in ("True", "False"):
        raise Unreplayable(f"{name}:{value} is neither True nor False")
    return value == "True"


@overload
def _megabytes(values: Mapping[str, str], name: str, *, above: int, otherwise: int) -> int: ...
@overload
def _megabytes(values: Mapping[str, str], name: str, *, above: int, otherwise: None) -> int | None: ...
def _megabytes(values: Mapping[str, str], name: str, *, above: int, otherwise: int | None) -> int | None:
    if name not in values:
        return otherwise
    size_bytes = _number(name, values[name]) * MIB
    if size_bytes <= above:
        raise Unreplayable(f"{name}:{values[name]} is below what PyTorch allows")
    return size_bytes


def _number(name: str, value: str) -> int:
    if not (value.isascii() and value.isdigit()):
        raise Unreplayable(f"{name}:{value} is no whole number")
    return int(value)


def _threshold(value: str | None) -> float:
    if value is None:
        return 0.0
    try:
        threshold = float(value)
    except ValueError:
        threshold = 0.0
    if not 0.0 < threshold < 1.0:
        raise Unreplayable(f"garbage_collection_threshold:{value} is not between 0 and 1")
    return threshold


def _divisions(value: str | None) -> tuple[int, ...]:
    """Sixteen entries from one number for all, or from ``[256:1,512:2,>:4]``: megabytes, then divisions.

    The first entry also holds for all smaller sizes, ``>`` for all larger ones than the entry before it; sizes between
    entries are not rounded this way.
    """
    if value is None:
        return ()
    if not value.startswith("["):
        return (_power(value),) * _DIVISION_INTERVALS
    divisions = [0] * _DIVISION_INTERVALS
    last = None
    for entry in filter(None, value[1:-1].split(",")):
        size, _, number = entry.partition(":")
        steps = 0 if number == "0" else _power(number)
        if size == ">":
            begin = 1 + (last or 0)
            divisions[begin:] = [steps] * (_DIVISION_INTERVALS - begin)
            continue
        interval = min(_power(size).bit_length() - 1, _DIVISION_INTERVALS - 1)
        for index in range(interval if last is None else 0):
            divisions[index] = steps
        divisions[interval] = steps
        last = interval
    return tuple(divisions)


def _power(value: str) -> int:
    number = _number("roundup_power2_divisions", value)
    if number.bit_count() != 1:
        raise Unreplayable(f"roundup_power2_divisions:{value} is no power of two")
    return number
