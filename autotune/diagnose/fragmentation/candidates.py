"""Which allocator configurations are worth a rerun where memory is in pieces. Pure."""

from autotune.memory.allocator_config import pairs
from autotune.units import MIB

_SPLIT_MIB = (32, 512)
"""Smallest and largest ``max_split_size_mb`` that is proposed; PyTorch refuses 20 and less."""


def candidates(current: str, requested_bytes: int | None) -> tuple[str, ...]:
    """Configurations that add one option to the present one, as they are worth trying.

    Nothing is proposed that is set already, or has no effect beside what is set: expandable segments are not split by
    size, and not collected.

    Args:
        current: what the training runs with; empty = PyTorch's defaults.
        requested_bytes: a request that failed or waited; blocks of half of its size are to stay whole. None = not known.

    Raises:
        Unreplayable: ``current`` is not written as PyTorch's options are.
    """
    options = dict(pairs(current))
    if options.get("backend", "native") != "native":
        return ()
    proposed: list[tuple[str, str]] = []
    if options.get("expandable_segments") != "True":
        if "expandable_segments" not in options:
            proposed.append(("expandable_segments", "True"))
        lowest, highest = _SPLIT_MIB
        half = (requested_bytes or 2 * 128 * MIB) // (2 * MIB)
        proposed.append(("max_split_size_mb", str(min(highest, max(lowest, half)))))
        proposed.append(("garbage_collection_threshold", "0.8"))
    proposed.append(("roundup_power2_divisions", "8"))
    return tuple(_with(options, name, value) for name, value in proposed if name not in options)


def _with(options: dict[str, str], name: str, value: str) -> str:
    return ",".join(f"{key}:{text}" for key, text in {**options, name: value}.items())
