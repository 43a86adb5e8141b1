"""Watching the memory of a training against what was certified for it. Pure."""

import warnings

from autotune.errors import MemoryWarning
from autotune.units import format_bytes


class MemoryGuard:
    """Warns once when the allocator holds more than was certified, and once when it begins to retry."""

    def __init__(self, certified_bytes: int | None, budget_bytes: int, retries: int) -> None:
        """
        Args:
            certified_bytes: device-wide peak of the job as the certifying probe measured it; None = it was not measured,
                and the budget counts.
            budget_bytes: what the job may use, device-wide.
            retries: of the allocator, before the training.
        """
        self._certified = certified_bytes
        self._limit = certified_bytes if certified_bytes is not None else budget_bytes
        self._budget = budget_bytes
        self._retries = retries
        self._told_reserved = self._told_retries = False

    def look(self, step: int, reserved: int, retries: int) -> None:
        """After an optimizer step, warn (``MemoryWarning``) of what is new.

        Args:
            step: its number.
            reserved: the most that the allocator held so far, in bytes.
            retries: of the allocator, since it began.
        """
        retries -= self._retries
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
