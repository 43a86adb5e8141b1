"""Peak memory by batch size, from a few probes that ran: for devices and workloads without traces that align.

Every allocation is taken to be affine in the batch size, so the peak of a phase is a maximum of affine functions: convex,
piecewise linear, never falling. Convexity bounds it: between two sizes that ran the chord from above, the neighbouring
chords, extended, from below; beyond the largest size the last chord from below and nothing from above. How far the curve
may lie above that chord is therefore an expectation, read off the change of slope seen so far: exact for a curve that
bends evenly (a matrix of batch by batch), zero for a straight one, too little for one that has not bent yet.

The hull proposes sizes; only probes decide. Whole bytes, whole samples, exact arithmetic: same input, same output.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import NamedTuple

from autotune.model import Phase

FARTHEST_FACTOR = 4
"""No size beyond this many times the largest that ran is proposed. The finder grows by no more either."""
NEAREST_FACTOR = 2
"""So far the proposal may go however much the curve bends: without any model a search would double."""
_DOUBT_SHARE = 1 / 4
"""Between the two a size is proposed only if its peak is uncertain by at most this share of the limit."""
_APART_SHARE = 15 / 16
"""Samples whose sizes are closer than this do not tell how fast an uneven curve grows."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Peaks of the phases that ran to their end in one probe, whether or not the probe did."""

    batch_size: int
    peaks: Mapping[Phase, int]
    """Bytes."""


@dataclass(frozen=True, slots=True)
class Censored:
    """A lower bound from an out-of-memory."""

    batch_size: int
    need_bytes: int
    """Allocated at the failure plus the request that failed. Where those are unknown: one more than the limit."""
    phase: Phase | None
    """None: not known."""


@dataclass(frozen=True, slots=True)
class Guess:
    """A limit, in multiples of the step asked for: ``low`` ≤ ``batch_size`` < ``high``."""

    batch_size: int
    """The largest size expected to fit, as far as a proposal may go; 0 where none is. Equal to a size known to fit, it
    says that the next one is expected to fail."""
    low: int
    """The largest size sure to fit, jitter and holes counted in: at most the largest that ran every phase; 0 where none
    is. A probe may know of a larger one."""
    high: int
    """The smallest size sure not to fit, or else the first beyond the bound."""
    wide: bool
    """True where a single size ran, so that mere proportion speaks for the guess."""


class _Slope(NamedTuple):
    """An exact fraction: bytes by samples."""

    rise: int
    run: int

    def below(self, distance: int) -> int:
        """Rise over the distance, rounded down."""
        return self.rise * distance // self.run

    def above(self, distance: int) -> int:
        """Rise over the distance, rounded up."""
        return -(-self.rise * distance // self.run)


_FLAT = _Slope(0, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Curve:
    """One phase. Sequences go by size; none of the functions falls with the batch size."""

    sizes: Sequence[int]
    lower: Sequence[int]
    upper: Sequence[int]
    """Between these lies every convex curve within the noise of the readings. Bytes."""
    middle: Sequence[int]
    onward: Sequence[_Slope]
    """The least slope the curve can have after each size."""
    inward: Sequence[_Slope | None]
    """The greatest slope it can have before each size; None after the last."""
    noise_bytes: int
    slack_bytes: int
    """How far readings lie off every convex curve, noise apart."""
    last: _Slope
    """Expected beyond the largest size: of the longest straight run of samples there."""
    last_from: int
    """The size that run begins at; 0 with a single sample."""
    bend: _Slope | None
    """Half the second derivative expected beyond the largest size, in bytes by squared samples; None with fewer than
    three sizes, which show none."""
    refuted: bool = False
    """An out-of-memory showed that the curve does bend upwards beyond the largest size."""

    def at_least(self, size: int) -> int:
        return max(0, self._bounds(size)[0] - self.slack_bytes)

    def at_most(self, size: int) -> int:
        beyond = size - self.sizes[-1]
        if beyond <= 0:
            return self._bounds(size)[1] + self.slack_bytes
        if self.bend is None:
            # No allocation is negative at batch 0, so memory grows at most in proportion to the batch.
            steepest = max(self.last, _Slope(self.upper[-1], self.sizes[-1]), key=_steepness)
            return self.upper[-1] + steepest.above(beyond) + self.slack_bytes
        straight = self.last.above(beyond) + self.bend.above(beyond * (size - self.last_from))
        doubt = _Slope(2 * self.noise_bytes, self.sizes[-1] - self.last_from).above(beyond)
        return self.middle[-1] + straight + self.noise_bytes + doubt + self.slack_bytes

    def expected(self, size: int) -> int:
        if size > self.sizes[-1]:
            return self.at_most(size) if self.refuted else self.straight(size)
        if len(self.sizes) < 3:
            return max(0, self.straight(size))
        if size < self.sizes[0]:
            return max(0, self.middle[0] - _chord(self.sizes, self.middle, 0, 1).above(self.sizes[0] - size))
        return sum(self._bounds(size)) // 2

    def straight(self, size: int) -> int:
        """What the last straight run says."""
        return self.middle[-1] + self.last.below(size - self.sizes[-1])

    def _bounds(self, size: int) -> tuple[int, int]:
        """Of a convex curve through the samples; the upper one ends at the largest size."""
        after = bisect_right(self.sizes, size)
        least = 0
        if after > 0:
            least = self.lower[after - 1] + self.onward[after - 1].below(size - self.sizes[after - 1])
        if after == len(self.sizes):
            return least, self.upper[-1]
        ahead = self.sizes[after] - size
        inward = self.inward[after]
        if inward is not None:
            least = max(least, self.lower[after] - inward.above(ahead))
        if after == 0:
            return least, self.upper[0]
        return least, self.upper[after] - _chord(self.sizes, self.upper, after - 1, after).below(ahead)


@dataclass(frozen=True, slots=True)
class Hull:
    """The model; made by ``fit_hull``."""

    _curves: tuple[_Curve, ...]
    _floors: tuple[Censored, ...]
    """Lower bounds beyond what ran."""

    def peak_bytes(self, batch_size: int) -> int:
        """The peak over all phases that is expected at this size."""
        return max(self._at_least(batch_size), self._expected(batch_size))

    def largest_within(self, limit_bytes: int, step: int, bound: int) -> Guess:
        """Guess the largest multiple of ``step`` up to ``bound`` with a peak within the limit.

        Raises:
            ValueError: the step is not positive.
        """
        if step < 1:
            raise ValueError(f"step is {step}, not positive")
        ran = min(curve.sizes[-1] for curve in self._curves)
        low = _largest(lambda size: self._at_most(size) <= limit_bytes, step, min(bound, ran))
        high = step + _largest(lambda size: self._at_least(size) <= limit_bytes, step, bound)
        reach = min(bound, max(step, self._reach(limit_bytes)))
        guess = _largest(lambda size: self._expected(size) <= limit_bytes, step, reach)
        if self._expected(high) <= limit_bytes < self._at_least(high):
            # A near miss, within the noise; or a bend of which nothing is known but that it lies in between.
            refuted = any(curve.refuted for curve in self._curves)
            untried = low + (high - low) // (2 * step) * step if refuted else high - step
            guess = min(untried, reach // step * step)
        wide = all(len(curve.sizes) == 1 for curve in self._curves)
        return Guess(max(low, guess), low, high, wide)

    def _reach(self, limit_bytes: int) -> int:
        """The largest size that may be proposed."""
        ran = max(curve.sizes[-1] for curve in self._curves)
        for factor in range(FARTHEST_FACTOR, NEAREST_FACTOR, -1):
            # With fewer than three sizes proportion is a bound so loose that it would forbid what every search risks.
            doubt = max((c.at_most(factor * ran) for c in self._curves if c.bend is not None), default=0)
            if doubt - self._expected(factor * ran) <= _DOUBT_SHARE * limit_bytes:
                return factor * ran
        return NEAREST_FACTOR * ran

    def _at_least(self, size: int) -> int:
        floors = (floor.need_bytes for floor in self._floors if floor.batch_size <= size)
        return max(max(curve.at_least(size) for curve in self._curves), *floors, 0)

    def _expected(self, size: int) -> int:
        return max(curve.expected(size) for curve in self._curves)

    def _at_most(self, size: int) -> int:
        return max(curve.at_most(size) for curve in self._curves)


def fit_hull(samples: Sequence[Sample], censored: Sequence[Censored] = (), *, noise_bytes: int = 0) -> Hull | None:
    """Fit one curve to each phase; None where no phase ran at any size.

    Samples of one size count as their largest, and what they differ by as noise. Readings that no convex curve can
    have, and an out-of-memory below a size that ran, widen the estimates around the curve beneath them.

    Args:
        samples: in any order; not every phase needs to be in each.
        censored: in any order.
        noise_bytes: how far apart two readings of the same size may lie.

    Raises:
        ValueError: a batch size is not positive, or the noise is negative.
    """
    smallest = min([s.batch_size for s in samples] + [c.batch_size for c in censored], default=1)
    if smallest < 1 or noise_bytes < 0:
        raise ValueError(f"a batch of {smallest}, noise of {noise_bytes} bytes: sizes begin at 1, noise at 0")
    readings: dict[Phase, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for sample in samples:
        for phase, peak_bytes in sample.peaks.items():
            readings[phase][sample.batch_size].append(peak_bytes)
    if not readings:
        return None
    curves = {phase: _fit(by_size, noise_bytes) for phase, by_size in readings.items() if len(by_size) > 1}
    # What does not depend on the batch in these phases (process, weights) is taken not to in the others either.
    fixed_bytes = min((curve.expected(0) for curve in curves.values()), default=0)
    for phase, by_size in readings.items():
        if phase not in curves:
            curves[phase] = _fit(by_size, noise_bytes, fixed_bytes)
    floors = []
    for bound in sorted(censored, key=lambda c: c.batch_size):
        size = bound.batch_size
        phase = bound.phase if bound.phase in curves else max(sorted(curves), key=lambda p: curves[p].expected(size))
        curve = curves[phase]
        if size > curve.sizes[-1]:
            floors.append(bound)
            explained = curve.straight(size) + curve.noise_bytes >= bound.need_bytes
            curves[phase] = replace(curve, refuted=curve.refuted or not explained)
        else:
            hole_bytes = max(0, bound.need_bytes - curve.at_most(size))
            curves[phase] = replace(curve, slack_bytes=curve.slack_bytes + hole_bytes)
    return Hull(tuple(curves.values()), tuple(floors))


def _fit(readings: Mapping[int, Sequence[int]], noise_bytes: int, fixed_bytes: int = 0) -> _Curve:
    sizes = sorted(readings)
    peaks = [max(readings[size]) for size in sizes]
    noise = max(noise_bytes, *(max(found) - min(found) for found in readings.values()))
    hull = _beneath(sizes, peaks)

    # A curve within the noise of all readings lies at most that far above the hull beneath them, so a reading twice
    # that far above it (a hole, a step, a workspace that stops growing) belongs to no such curve.
    excess = [peak - at.below(1) for peak, at in zip(peaks, hull, strict=True)]
    upper = [at.above(1) + noise for at in hull]
    lower: list[int] = []
    onward: list[_Slope] = []
    for i, size in enumerate(sizes):
        own = hull[i].below(1) + (excess[i] if excess[i] <= 2 * noise else 0) - noise
        lower.append(max(own, lower[-1] + onward[-1].below(size - sizes[i - 1])) if lower else own)
        slopes = (_Slope(lower[i] - upper[j], size - sizes[j]) for j in range(i))
        onward.append(max([_FLAT, *slopes], key=_steepness))
    inward: list[_Slope | None] = []
    for i, size in enumerate(sizes):
        slopes = (_Slope(upper[j] - lower[i], sizes[j] - size) for j in range(i + 1, len(sizes)))
        inward.append(min(slopes, key=_steepness, default=None))

    middle = [(low + high) // 2 for low, high in zip(lower, upper, strict=True)]
    if len(sizes) == 1:
        last, last_from, bend = _Slope(max(0, middle[0] - fixed_bytes), sizes[0]), 0, None
    else:
        start = _run_start(sizes, middle, noise)
        last, last_from, bend = _chord(sizes, middle, start, -1), sizes[start], _bend(sizes, middle, start)
    unexplained = [more > 2 * noise for more in excess]
    if any(unexplained):
        apart = max(0, bisect_right(sizes, int(_APART_SHARE * sizes[-1])) - 1)
        latest = _Slope(max(0, peaks[-1] - peaks[apart]), sizes[-1] - sizes[apart])
        onward[-1] = min(onward[-1], latest, key=_steepness)
        if unexplained[-3:] == [True, True, False] and _steepness(latest) < _steepness(last):
            # Two in a row at the end are no holes: the curve grows ever slower.
            last, last_from, bend = latest, sizes[apart], _FLAT
    return _Curve(
        sizes=sizes,
        lower=lower,
        upper=upper,
        middle=middle,
        onward=onward,
        inward=inward,
        noise_bytes=noise,
        slack_bytes=max(excess) - noise if any(unexplained) else 0,
        last=last,
        last_from=last_from,
        bend=bend,
    )


def _beneath(sizes: Sequence[int], peaks: Sequence[int]) -> list[_Slope]:
    """The greatest convex function that never falls and exceeds no reading: at each size, as a fraction."""
    reached = list(accumulate(reversed(peaks), min))[::-1]
    corners: list[int] = []
    for i in range(len(sizes)):
        while len(corners) > 1:
            before, after = _chord(sizes, reached, *corners[-2:]), _chord(sizes, reached, corners[-1], i)
            if before.rise * after.run < after.rise * before.run:
                break
            corners.pop()
        corners.append(i)
    values = [_Slope(reached[0], 1)]
    for left, right in pairwise(corners):
        rise, run = _chord(sizes, reached, left, right)
        for size in sizes[left + 1 : right + 1]:
            values.append(_Slope(reached[left] * run + rise * (size - sizes[left]), run))
    return values


def _run_start(sizes: Sequence[int], peaks: Sequence[int], noise: int) -> int:
    """Index of the first sample of the longest straight run that ends at the last."""
    end = len(sizes) - 1
    start = end - 1
    while start > 0:
        rise, run = _chord(sizes, peaks, start - 1, end)
        inner = range(start, end)
        if any(abs((peaks[end] - peaks[i]) * run - rise * (sizes[end] - sizes[i])) > noise * run for i in inner):
            break
        start -= 1
    return start


def _bend(sizes: Sequence[int], peaks: Sequence[int], start: int) -> _Slope | None:
    """The second divided difference at the end: within the run or, where two samples make any line a run, before it."""
    end = len(sizes) - 1
    if end < 2:
        return None
    if start == end - 1:
        left, middle = start - 1, start
    else:
        # The sample in between that noise distorts least.
        left = start
        middle = max(range(start + 1, end), key=lambda i: (sizes[i] - sizes[start]) * (sizes[end] - sizes[i]))
    before, after = _chord(sizes, peaks, left, middle), _chord(sizes, peaks, middle, end)
    change = after.rise * before.run - before.rise * after.run
    return _Slope(max(0, change), before.run * after.run * (sizes[end] - sizes[left]))


def _chord(sizes: Sequence[int], peaks: Sequence[int], left: int, right: int) -> _Slope:
    return _Slope(peaks[right] - peaks[left], sizes[right] - sizes[left])


def _steepness(slope: _Slope) -> float:
    return slope.rise / slope.run


def _largest(fits: Callable[[int], bool], step: int, bound: int) -> int:
    """The largest multiple of ``step`` up to ``bound`` that fits, if all smaller ones do; 0 if none."""
    counts = range(1, max(0, bound // step) + 1)
    return step * bisect_left(counts, True, key=lambda count: not fits(count * step))
