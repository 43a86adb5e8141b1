"""Which certified size to recommend: the smallest that is about as fast as the fastest.

Larger batches are often no faster and sometimes slower, and every gigabyte they take is missing elsewhere.
"""

from collections.abc import Mapping, Sequence

from autotune.model import Form, ProbeResult, Question, Reason
from autotune.search.evidence import Evidence, Standing

TOLERANCE = 0.02
"""Throughputs within this share of the best count as equal."""
_PEAK_DROP = 0.05
"""A larger size slower by more than this, even in its fastest step, shows a real peak below it rather than noise."""
_PEAK_PROBES = 4
"""Short probes spent on closing in on such a peak: sizes a factor of two to four apart need about that many."""
_PEAK_GAP = 1 / 8
"""Gaps narrower than this share of the size are not searched: throughput is flat around its peak."""
_CERTIFICATIONS = 2
"""Long probes spent on candidates; after them the fastest of the certified sizes has to do."""


def recommend(evidence: Evidence, history: Sequence[ProbeResult], *, step: int, max_batch: int) -> Question | int:
    """Return a certified size, or the probe that is needed to choose one.

    Args:
        evidence: read from ``history``; ``max_batch`` is certified in it.
        history: tells how much was already spent on the recommendation.
        step: spacing of legal sizes.
        max_batch: the largest certified size.
    """
    speeds = {
        size: speed
        for size in evidence.good
        if size <= max_batch and (speed := evidence.findings[size].probe.samples_per_second) is not None
    }
    if max_batch not in speeds:
        return max_batch
    asked = [probe.form for probe in history if probe.reason is Reason.RECOMMEND]
    if Form.LONG not in asked and len(asked) < _PEAK_PROBES:
        size = _towards_peak(evidence, speeds, step)
        if size is not None:
            return Question(batch_size=size, form=Form.SHORT, reason=Reason.RECOMMEND)
    candidate = _smallest_fast(speeds)
    if evidence.findings[candidate].standing is Standing.CERTIFIED:
        return candidate
    if asked.count(Form.LONG) < _CERTIFICATIONS:
        return Question(batch_size=candidate, form=Form.LONG, reason=Reason.RECOMMEND)
    return _smallest_fast({size: speeds[size] for size in evidence.certified if size in speeds})


def _smallest_fast(speeds: Mapping[int, float]) -> int:
    best = max(speeds.values())
    return min(size for size, speed in speeds.items() if speed >= (1 - TOLERANCE) * best)


def _towards_peak(evidence: Evidence, speeds: Mapping[int, float], step: int) -> int | None:
    """A size in the wider gap beside the fastest one, if throughput is seen to fall again further up.

    Growing leaves gaps of a factor of two or four, in which a peak hides. On the way to a plateau, which is the usual
    shape, nothing is slower above and nothing is asked.
    """
    sizes = sorted(speeds)
    fastest = max(sizes, key=lambda size: speeds[size])
    slow = (1 - _PEAK_DROP) * speeds[fastest]
    if all(_fastest_step(evidence.findings[size].probe) >= slow for size in sizes if size > fastest):
        return None
    at = sizes.index(fastest)
    choices = []
    for neighbour in (*sizes[max(0, at - 1) : at], sizes[at + 1]):
        low, high = sorted((neighbour, fastest))
        middle = (low + high) // 2 // step * step
        if high - low > _PEAK_GAP * high and low < middle and middle not in evidence.findings:
            choices.append((high - low, speeds[neighbour], middle))
    return max(choices)[-1] if choices else None


def _fastest_step(probe: ProbeResult) -> float:
    return probe.batch_size * probe.accumulate / min(probe.measurement.step_seconds)
