"""Watching the memory of a training against what was certified for it."""

import warnings
from collections.abc import Callable, Mapping

import torch

from autotune.errors import MemoryWarning
from autotune.units import format_bytes

Stats = Callable[[], Mapping[str, int]]
"""Reads the allocator's statistics, as ``torch.cuda.memory_stats`` has them."""

_RESERVED = "reserved_bytes.all.peak"
_RETRIES = "num_alloc_retries"


class MemoryGuard:
    """Warns once when the allocator holds more than was certified, and once when it begins to retry."""

    def __init__(self, certified_bytes: int | None, budget_bytes: int, read: Stats) -> None:
        """
        Args:
            certified_bytes: device-wide peak of the job as the certifying probe measured it; None = it was not measured,
                and the budget counts.
            budget_bytes: what the job may use, device-wide.
            read: the allocator's statistics.
        """
        self._certified = certified_bytes
        self._limit = certified_bytes if certified_bytes is not None else budget_bytes
        self._budget = budget_bytes
        self._read = read
        self._retries = read().get(_RETRIES, 0)
        self._told_reserved = self._told_retries = False

    def look(self, step: int) -> None:
        """Look at the statistics after an optimizer step, and warn (``MemoryWarning``) of what is new."""
        stats = self._read()
        reserved, retries = stats.get(_RESERVED, 0), stats.get(_RETRIES, 0) - self._retries
        if reserved > self._limit and not self._told_reserved:
            self._told_reserved = True
            what = "was certified" if self._certified is not None else "was allowed"
            warnings.warn(
                MemoryWarning(
                    f"step {step}: the allocator holds {format_bytes(reserved)}, more than the {format_bytes(self._limit)}"
                    f" that {what} (budget {format_bytes(self._budget)})\n"
                    "hint: look for larger samples than those that were probed, or for what else runs between the steps"
                ),
                stacklevel=2,
            )
        if retries > 0 and not self._told_retries:
            self._told_retries = True
            warnings.warn(
                MemoryWarning(
                    f"step {step}: {retries} allocator retries since the training began, with {format_bytes(reserved)}"
                    " held: the device is full, every step gets slower, and the next may be out of memory\n"
                    "hint: lower the batch size, or search again with a lower --memory-limit"
                ),
                stacklevel=2,
            )


def device_guard(certified_bytes: int | None, budget_bytes: int, device: torch.device) -> MemoryGuard | None:
    """A guard of a device whose allocator counts; None for others (the CPU has no allocator that does)."""
    if device.type != "cuda":
        return None
    return MemoryGuard(certified_bytes, budget_bytes, lambda: torch.cuda.memory_stats(device))
