"""Which batch sizes the workload accepts at all: even ones, multiples of 8, at least 2 …"""

from math import gcd

from autotune.search.evidence import Evidence

FIRST_SIZES = (1, 2, 4, 8, 6, 16, 12, 64)
"""Tried in this order, times ``--multiple-of``, while the workload rejects everything: between them they satisfy
"at least n" up to 64 and "a multiple of" 2, 3, 4, 6, 8, 12, 16, 32 and 64."""

_LARGEST_FACTOR = 1024
"""No workload is believed to demand a coarser multiple of ``--multiple-of`` than this."""


def legal_step(evidence: Evidence, unit: int) -> int:
    """The spacing of legal sizes: ``unit``, or the smallest multiple of it that explains what the workload rejected.

    It divides every size that ran and none that was rejected. Taking the smallest keeps a wrong guess harmless:
    it leaves more sizes in the search than the workload accepts, never fewer, and the next rejection corrects it.
    """
    accepted = evidence.accepted
    if not accepted:
        return unit
    rejected = [size for size, finding in evidence.findings.items() if finding.rejects_size]
    # Rejections above every size that ran may be a ceiling of their own (an index that only large batches contain)
    # and contradict every spacing; then only those below count.
    for sizes in (rejected, [size for size in rejected if size < accepted[-1]]):
        step = _spacing(accepted, sizes, unit)
        if step is not None:
            return step
    return unit


def telling_size(evidence: Evidence, unit: int) -> int | None:
    """The size that tells "multiples of d only" from "at least n", or None where that is known or makes no odds.

    Just above the smallest size that ran: a workload that merely wants two samples runs with three.
    """
    if legal_step(evidence, unit) == unit:
        return None
    size = evidence.accepted[0] + unit
    return size if size not in evidence.findings else None


def _spacing(accepted: list[int], rejected: list[int], unit: int) -> int | None:
    if not rejected:
        return None
    common = gcd(*accepted)
    for step in range(2 * unit, min(common, _LARGEST_FACTOR * unit) + 1, unit):
        if common % step == 0 and all(size % step for size in rejected):
            return step
    return None
