"""Memory that grows from step to step for ever, told apart from warm-up, from caches that level off and from cycles. Pure.

The one estimator of probes, guards and diagnoses. Readings are (step, bytes) in order; the caller leaves warm-up out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from statistics import fmean, median

EVENNESS = 0.8
"""Share of all pairs of readings in which the later one holds more; noise has a half, a leak all."""
STILL = 0.5
"""Each half must grow by at least this share of the whole rate; a jump does not..."""
GOES_ON = 0.75
"""... and the later half by at least this share of the rate of the earlier one; a cache that levels off does not."""
ALIKE = 0.1
"""Steps add the same where they differ by no more than this share of it."""

Readings = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """A leak as far as it was seen."""

    bytes_per_step: float
    evenness: float
    """Share of pairs of readings in which the later one holds more (1 = it only ever rose)."""
    fit: float
    """Share of the readings' variance that a line of this rate explains, 0 to 1."""
    steps: int
    """From the first reading to the last."""


def growth_of(readings: Readings, least_bytes: float) -> Growth | None:
    """Growth that goes on to the end of these readings.

    Args:
        readings: at least four.
        least_bytes: growth over all of them that is worth telling.
    """
    steps = readings[-1][0] - readings[0][0] if readings else 0
    if len(readings) < 4 or steps <= 0:
        return None
    rate, half = _steady(readings) or slope(readings), len(readings) // 2
    if rate * steps < least_bytes:
        return None
    early, late = slope(readings[:half]), slope(readings[half:])
    pairs = list(combinations([held for _, held in readings], 2))
    evenness = sum(later > earlier for earlier, later in pairs) / len(pairs)
    if evenness < EVENNESS or min(early, late) < STILL * rate or late < GOES_ON * early:
        return None
    return Growth(bytes_per_step=rate, evenness=evenness, fit=fit(readings, rate), steps=steps)


def _steady(readings: Readings) -> float | None:
    """What every step adds but for a single jump, which a slope in its middle would not quite pass over. None where steps
    differ."""
    added = [(later[1] - earlier[1]) / (later[0] - earlier[0]) for earlier, later in pairwise(readings)]
    middle = median(added)
    alike = sum(abs(one - middle) <= ALIKE * middle for one in added)
    return middle if middle > 0 and alike >= len(added) - 1 else None


def slope(readings: Readings) -> float:
    """Bytes per step: the median over all pairs (Theil-Sen), which single jumps and outliers do not move."""
    return median(
        (later[1] - earlier[1]) / (later[0] - earlier[0])
        for earlier, later in combinations(readings, 2)
        if later[0] > earlier[0]
    )


def fit(readings: Readings, rate: float) -> float:
    """Share of the variance that a line of this rate explains (R squared), 0 to 1."""
    mean = fmean(held for _, held in readings)
    rest = [held - rate * step for step, held in readings]
    middle = fmean(rest)
    around = sum((held - mean) ** 2 for _, held in readings)
    return max(0.0, 1 - sum((one - middle) ** 2 for one in rest) / around) if around else 0.0
