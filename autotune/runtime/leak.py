"""A watch over a running training for memory that grows from step to step. Pure; what growth is says ``diagnose.growth``."""

from collections import deque

from autotune.diagnose.growth import Growth, growth_of
from autotune.units import MIB

WINDOW = 48
"""Looks that are judged together: long enough for cycles of a dozen looks to show as such."""
WARM_UP = 4
"""First looks that are left out: optimizer state, chosen kernels and compiled graphs come once."""
LEAST_BYTES = MIB
"""Growth over a window below this is no leak worth the name, where tensors are counted..."""
LEAST_HOST_BYTES = 8 * MIB
"""... and where pages of the whole process are: heaps breathe by a few MiB."""


class Leak:
    """Looks at what is held after steps, and finds growth that goes on."""

    def __init__(self, least_bytes: int) -> None:
        """``least_bytes``: growth over a whole window that is told."""
        self._least = least_bytes
        self._skipped = 0
        self._held: deque[tuple[int, int]] = deque(maxlen=WINDOW)
        self._since = 0

    def look(self, step: int, held_bytes: int) -> Growth | None:
        """Take one look in; the growth if there is one. Judged once in half a window, since it takes a millisecond."""
        if self._skipped < WARM_UP:
            self._skipped += 1
            return None
        self._held.append((step, held_bytes))
        self._since += 1
        if len(self._held) < WINDOW or self._since < WINDOW // 2:
            return None
        self._since = 0
        return growth_of(tuple(self._held), self._least)
