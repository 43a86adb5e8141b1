"""Numbers of bytes inside failure texts, and what counts as little, large or absurd. Pure."""

import re
from collections.abc import Iterable

from autotune.units import GIB, KIB, MIB

LITTLE_SHARE = 0.02
LITTLE_BYTES = 512 * MIB
LITTLE_AT_MOST_SHARE = 0.25
"""Free memory is *little* below 2 % of the capacity but at least 512 MiB: what a budget leaves as headroom, and what a
cuBLAS handle with its kernels and a cuDNN workspace may want at once. Never more than a quarter of the capacity, or a
small device would always count as full."""
ABSURD_FACTOR = 100
ABSURD_BYTES = 1 << 60
"""A request beyond 100 times the device, or an exbibyte (where PyTorch stops naming a size), is a bug, not a need."""

_SIZE = r"(?P<number>\d[\d,]{0,24}(?:\.\d{0,6})?)\s?(?P<unit>bytes|[KMGTPE]?i?B?)\b"
_POWERS = {"K": KIB, "M": MIB, "G": GIB, "T": 1 << 40, "P": 1 << 50, "E": 1 << 60}
"""Also for ``GB`` and ``G``: the allocators that print these (MPS, XLA) divide by powers of two."""


def _patterns(*texts: str) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(text.replace("SIZE", _SIZE), re.IGNORECASE) for text in texts)


_REQUESTED = _patterns(
    r"tried to allocate (?:more than )?SIZE",
    r"requested\s*:\s*SIZE",
    r"unable to allocate SIZE",
    r"attempting to (?:reserve|allocate) SIZE",
    r"out of memory allocating SIZE",
    r"failed to cuda [cm]alloc(?: async)? SIZE",
    r"memory allocation of SIZE failed",
    r"allocation failed for size::SIZE",
    r"invalid buffer size: SIZE",
    r"failed to allocate (?:request for )?SIZE",
)
_FREE = _patterns(
    r"of which SIZE is free",
    r"there are SIZE free",
    r"free \(according to cuda\)\s*:\s*SIZE",
    r"already allocated; SIZE free",
)
_UNALLOCATED = _patterns(r"SIZE is reserved by pytorch but unallocated")
_PRIVATE_POOLS = _patterns(r"SIZE allocated in private pools")


def requested_bytes(text: str) -> int | None:
    """The allocation that failed; PyTorch names the segment it sought, 20 MiB for a tensor of 1 to 10 MiB."""
    return _first(_REQUESTED, text)


def free_bytes(text: str) -> int | None:
    """Free device memory."""
    return _first(_FREE, text)


def unallocated_bytes(text: str) -> int | None:
    """What PyTorch's allocator held without having handed it out: room lost to fragmentation."""
    return _first(_UNALLOCATED, text)


def private_pool_bytes(text: str) -> int | None:
    """What CUDA graphs keep to themselves."""
    return _first(_PRIVATE_POOLS, text)


def _first(patterns: Iterable[re.Pattern[str]], text: str) -> int | None:
    match = next((match for pattern in patterns if (match := pattern.search(text))), None)
    if match is None:
        return None
    unit = match["unit"].upper()
    factor = 1 if unit == "BYTES" else _POWERS.get(unit[:1], 1)
    number = match["number"].replace(",", "")
    return round(float(number) * factor) if "." in number else int(number) * factor


def little_bytes(capacity_bytes: int | None) -> float:
    """Below this, free memory is next to none."""
    if not capacity_bytes:
        return LITTLE_BYTES
    return min(max(LITTLE_SHARE * capacity_bytes, LITTLE_BYTES), LITTLE_AT_MOST_SHARE * capacity_bytes)


def is_little(room_bytes: int | None, capacity_bytes: int | None) -> bool | None:
    """Tell whether so much free memory is next to none; None where it is not known."""
    return None if room_bytes is None else room_bytes < little_bytes(capacity_bytes)


def is_absurd(requested: int | None, capacity_bytes: int | None) -> bool:
    """Tell whether no machine could satisfy the request; False where it is not known."""
    if requested is None:
        return False
    return requested >= ABSURD_BYTES or bool(capacity_bytes and requested > ABSURD_FACTOR * capacity_bytes)
