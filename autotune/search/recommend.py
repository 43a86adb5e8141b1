"""Which certified size to recommend: the smallest that is about as fast as the fastest.

Larger batches are often no faster and sometimes slower, and every gigabyte they take is missing elsewhere. The way to
the limit times few sizes, or just the limit where the allocator was recorded: short probes look for smaller ones.
"""

from collections.abc import Mapping, Sequence
from math import ceil, isqrt

from autotune.model import Form, ProbeResult, Question, Reason
from autotune.search.evidence import Evidence, Standing

TOLERANCE = 0.02
"""Throughputs within this share of the best count as equal."""
_SHORT_PROBES = 4
"""Short probes spent on smaller sizes and on a peak, together. As many strides of `_STRIDE` span what is common between
the smallest fast size and the limit, or close in on a peak between sizes a factor of two to four apart."""
_STRIDE = 4
"""Sizes are divided by this on the way down. The finder grows by as much, so both ways leave the same gaps. By halves a
throughput that is flat from 8 to 400 would be followed down to 25 only."""
_NEAR = 2
"""A fast size is small enough if none can be fast that is smaller by more than this factor. Where throughput grows up
to the limit, all short probes would otherwise go into saving a few samples."""
_PEAK_DROP = 0.05
"""A larger size slower by more than this, even in its fastest step, shows a real peak below it rather than noise."""
_PEAK_GAP = 1 / 8
"""Gaps narrower than this share of the size are not searched for a peak: throughput is flat around it."""
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
    candidate = _smallest_fast(speeds)
    asked = [probe.form for probe in history if probe.reason is Reason.RECOMMEND]
    if Form.LONG not in asked and len(asked) < _SHORT_PROBES:
        size = _worth_timing(evidence, speeds, candidate, step)
        if size is not None:
            return Question(batch_size=size, form=Form.SHORT, reason=Reason.RECOMMEND)
    if evidence.findings[candidate].standing is Standing.CERTIFIED:
        return candidate
    if asked.count(Form.LONG) < _CERTIFICATIONS:
        return Question(batch_size=candidate, form=Form.LONG, reason=Reason.RECOMMEND)
    return of_certified(evidence)


def of_certified(evidence: Evidence) -> int:
    """The smallest fast one of the sizes that are certified already; the largest where none of them was timed."""
    found = {size: evidence.findings[size].probe.samples_per_second for size in evidence.certified}
    speeds = {size: speed for size, speed in found.items() if speed is not None}
    return _smallest_fast(speeds) if speeds else evidence.certified[-1]


def _fast(speeds: Mapping[int, float]) -> float:
    """The least throughput that counts as equal to the best."""
    return (1 - TOLERANCE) * max(speeds.values())


def _smallest_fast(speeds: Mapping[int, float]) -> int:
    fast = _fast(speeds)
    return min(size for size, speed in speeds.items() if speed >= fast)


def _worth_timing(evidence: Evidence, speeds: Mapping[int, float], candidate: int, step: int) -> int | None:
    """The size to time next, or None where nothing is to be gained."""
    smaller, peak = _below(evidence, speeds, candidate, step), _towards_peak(evidence, speeds, step)
    # A peak is worth closing in on only once throughput was seen to fall on its lower side too.
    choices = (smaller, peak) if candidate == min(speeds) else (peak, smaller)
    return next((size for size in choices if size is not None), None)


def _below(evidence: Evidence, speeds: Mapping[int, float], candidate: int, step: int) -> int | None:
    """A size between the smallest fast one and the largest slow or failed one: a stride down, or half-way by ratio."""
    slow = max((size for size in speeds if size < candidate), default=0)
    floor = max((finding.size for finding in evidence.failed if finding.size < candidate), default=0) // step + 1
    if slow:
        floor = max(floor, ceil(_least_size(speeds, slow, _fast(speeds)) / step))
    top = candidate // step
    if top <= _NEAR * floor:
        return None
    size = max(isqrt(floor * top), top // _STRIDE) * step
    return size if _untimed(evidence, size) else None


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
    gaps = [(fastest, sizes[at + 1])]
    if at > 0:
        gaps.append((ceil(_least_size(speeds, sizes[at - 1], speeds[fastest])), fastest))
    choices = []
    for low, high in gaps:
        middle = isqrt(low * high) // step * step
        if high - low > _PEAK_GAP * high and low < middle and _untimed(evidence, middle):
            choices.append((high / low, middle))
    return max(choices)[-1] if choices else None


def _least_size(speeds: Mapping[int, float], size: int, wanted: float) -> float:
    """No size below this one can be so fast as wanted, going by a slower ``size`` below it.

    More samples take no less time. A throughput that grows in proportion to the batch needs no probes between this way.
    """
    return size * wanted / speeds[size]


def _untimed(evidence: Evidence, size: int) -> bool:
    """True if nothing is known of the size, or only what a recording, which has no step times, says."""
    finding = evidence.findings.get(size)
    return finding is None or (finding.probe.fits and finding.probe.reason is Reason.TRACE)


def _fastest_step(probe: ProbeResult) -> float:
    return probe.batch_size * probe.settings.accumulate / min(probe.measurement.step_seconds)
