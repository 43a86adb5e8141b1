"""What settings are chosen for, as one number: the larger its logarithm the better."""

from dataclasses import dataclass
from math import log

from autotune.model import Objective
from autotune.search.settings.room import expected_limit, held_bytes
from autotune.search.settings.rows import Row

_AS_FAST = 0.005
"""A smaller size that is slower by no more than this is the better one."""


@dataclass(frozen=True, slots=True)
class Best:
    """Where settings are at their best."""

    size: int
    value: float
    """Logarithm of the goal there."""


@dataclass(frozen=True, slots=True)
class Goal:
    """An objective, made measurable."""

    objective: Objective
    wanted: int
    """Size at which memory is compared."""

    def best(self, row: Row) -> Best | None:
        """Throughput: at the fastest size timed. Batch: the limit expected. Memory: at the wanted size. None: not measured."""
        match self.objective:
            case Objective.THROUGHPUT:
                return _fastest(row)
            case Objective.BATCH:
                limit = expected_limit(row)
                return Best(limit, log(limit)) if limit else None
            case Objective.MEMORY:
                told = [p for p in row.probes if p.fits and p.batch_size == self.wanted and held_bytes(p)]
                if self.wanted not in row.evidence.good or not told:
                    return None
                return Best(self.wanted, -log(max(held_bytes(p) for p in told)))


def _fastest(row: Row) -> Best | None:
    speeds = row.timed
    if not speeds:
        return None
    top = max(speeds.values())
    size = min(n for n, speed in speeds.items() if speed >= (1 - _AS_FAST) * top)
    return Best(size, log(speeds[size]))
