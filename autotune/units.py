"""Bytes, seconds and counts as people write and read them."""

import re

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30

LARGEST = 1 << 60
"""No count and no number of bytes of ours is larger; databases have room for twice as much."""


def counted(number: int, one: str, many: str = "") -> str:
    """``1 probe``, ``3 probes``; ``many``: the word for several, where it is not that for one with an s."""
    return f"{number} {one if number == 1 else many or f'{one}s'}"


_FACTORS = {
    "": 1,
    "b": 1,
    "kib": KIB,
    "mib": MIB,
    "gib": GIB,
    "tib": 1 << 40,
    "k": KIB,
    "m": MIB,
    "g": GIB,
    "t": 1 << 40,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
}
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z]*)\s*")


def parse_bytes(text: str) -> int:
    """Read a size such as ``512MiB``, ``24GiB``, ``1.5g`` or ``1000000`` as whole bytes.

    ``KB``/``MB``/``GB``/``TB`` are powers of ten (SI); ``KiB``… and single letters are powers of two.

    Raises:
        ValueError: the text is no size, or is zero.
    """
    match = _SIZE.fullmatch(text)
    factor = _FACTORS.get(match.group(2).lower()) if match else None
    if match is None or factor is None:
        raise ValueError(f"{text[:40]!r} is not a size")
    size_bytes = float(match.group(1)) * factor
    if not 1 <= size_bytes < LARGEST:
        raise ValueError(f"{text[:40]!r} is not a size above zero and below a million TiB")
    return int(size_bytes)


_DURATION_FACTORS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_DURATION = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z])\s*")


def parse_duration(text: str) -> float:
    """Read a time such as ``30d``, ``12h``, ``90m``, ``45s`` or ``2w`` as seconds.

    Raises:
        ValueError: the text is none.
    """
    match = _DURATION.fullmatch(text)
    factor = _DURATION_FACTORS.get(match.group(2).lower()) if match else None
    if match is None or factor is None:
        raise ValueError(f"{text!r} is not a time; write for example 30d, 12h or 2w")
    return float(match.group(1)) * factor


def format_bytes(size_bytes: int | None) -> str:
    """Bytes for people: ``512 MiB``, ``39.8 GiB``; ``-`` for None (not measured)."""
    if size_bytes is None:
        return "-"
    for factor, unit in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if abs(size_bytes) >= factor:
            return f"{size_bytes / factor:.4g} {unit}"
    return f"{size_bytes} B"


def format_seconds(seconds: float | None) -> str:
    """Seconds for people: ``340 ms``, ``2.1 s``, ``3 min 5 s``; ``-`` for None (not measured)."""
    if seconds is None:
        return "-"
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"
