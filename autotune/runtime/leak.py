"""Memory that grows from step to step for ever, told apart from warm-up, from caches that level off and from cycles. Pure."""

from collections import deque
from dataclasses import dataclass
from itertools import combinations
from statistics import median

from autotune.units import MIB

WINDOW = 48
"""Looks that are judged together: long enough for cycles of a dozen looks to show as such."""
WARM_UP = 4
"""First looks that are left out: optimizer state, chosen kernels and compiled graphs come once."""
LEAST_BYTES = MIB
"""Growth over a window below this is no leak worth the name, where tensors are counted..."""
LEAST_HOST_BYTES = 8 * MIB
"""... and where pages of the whole process are: heaps breathe by a few MiB."""
EVENNESS = 0.8
"""Share of all pairs of looks in which the later one holds more; noise has a half, a leak all."""
STILL = 0.5
"""Each half of the window must grow by at least this share of the whole rate; a jump does not..."""
GOES_ON = 0.75
"""... and the later half by at least this share of the rate of the earlier one; a cache that levels off does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """A leak as far as it was seen."""

    bytes_per_step: float
    evenness: float
    """Share of pairs of looks in which the later one holds more (1 = it only ever rose)."""
    steps: int
    """That were looked at."""


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
        return self._judge()

    def _judge(self) -> Growth | None:
        looks = list(self._held)
        steps = looks[-1][0] - looks[0][0]
        if steps <= 0:
            return None
        rate = _slope(looks)
        early, late = _slope(looks[: WINDOW // 2]), _slope(looks[WINDOW // 2 :])
        pairs = list(combinations([held for _, held in looks], 2))
        evenness = sum(later > earlier for earlier, later in pairs) / len(pairs)
        if (
            rate * steps < self._least
            or evenness < EVENNESS
            or min(early, late) < STILL * rate
            or late < GOES_ON * early
        ):
            return None
        return Growth(bytes_per_step=rate, evenness=evenness, steps=steps)


def _slope(looks: list[tuple[int, int]]) -> float:
    """Bytes per step: the median over all pairs (Theil-Sen), which single jumps and outliers do not move."""
    return median(
        (later[1] - earlier[1]) / (later[0] - earlier[0])
        for earlier, later in combinations(looks, 2)
        if later[0] > earlier[0]
    )
