"""Between which sizes the limit lies: the largest that fits and the smallest failure above it that bounds."""

from dataclasses import dataclass
from enum import Enum, auto

from autotune.model import Cause
from autotune.search.evidence import Evidence, Finding


class Trust(Enum):
    """How far the failure at the upper end can be taken for a ceiling."""

    SURE = auto()
    """Memory, a hard limit or time; or the next legal size failed as well; or there is no next legal size."""
    LIKELY = auto()
    """Fails for the same reason as a sure ceiling further up, and no hole was seen with that reason. Good enough to go
    on below it; the neighbour is asked once, at the end, instead of after every failure."""
    DOUBTFUL = auto()
    """May be a hole: this size only (one kernel, one unlucky shape)."""


@dataclass(frozen=True, slots=True)
class Bracket:
    """Sizes below ``low`` may contain holes; nothing that fits is known above it."""

    low: int
    high: Finding | None
    """None: nothing in bounds failed above ``low``."""
    trust: Trust


def bracket(evidence: Evidence, step: int, bound: int) -> Bracket:
    """Read the bracket off evidence that has at least one good size.

    ``low`` is the largest good size even if a smaller one failed by memory: feasibility need not be monotone. Once
    the short form was caught wrong, a certified size counts more than a larger one that only fits in the short form.
    """
    low = evidence.certified[-1] if evidence.short_form_misled and evidence.certified else evidence.good[-1]
    failures = [f for f in evidence.failed if low < f.size <= bound and (f.is_ceiling or f.size % step == 0)]
    high: Finding | None = None
    trust = Trust.SURE
    hole_causes = {f.cause for f in evidence.failed if f.size < low and not f.is_ceiling and not f.rejects_size}
    sure_causes: set[Cause] = set()
    for finding in reversed(failures):
        trust = _trust(finding, high, finding.size + step, bound, sure_causes)
        if trust is Trust.SURE:
            sure_causes |= {finding.cause} - hole_causes
        high = finding
    return Bracket(low, high, trust)


def holes(evidence: Evidence, step: int, answer: int) -> tuple[int, ...]:
    """Legal sizes that failed although a smaller and a larger one ran; a minimum size is no hole."""
    smallest = evidence.accepted[0]
    return tuple(f.size for f in evidence.failed if smallest < f.size < answer and f.size % step == 0)


def _trust(finding: Finding, failed_above: Finding | None, neighbour: int, bound: int, sure: set[Cause]) -> Trust:
    if finding.is_ceiling or neighbour > bound or (failed_above is not None and failed_above.size <= neighbour):
        return Trust.SURE
    # Read from an internal assertion instead of an error, but the same thing below an out-of-memory.
    cause = Cause.DEVICE_MEMORY if finding.cause is Cause.MASKED_MEMORY else finding.cause
    return Trust.LIKELY if {cause, finding.cause} & sure else Trust.DOUBTFUL
