"""How the size of one request depends on the batch size, judged by its sizes in two or more passes.

What outlives a few events (weights, gradients, optimizer state, activations, batches) is constant or a line, and exactly
so. What does not is often a workspace: chosen by the size of the problem, it may stop growing, jump, or not be there at
all. A line is drawn through the two largest sizes, where kernels differ least from those near the limit; the other
sizes check it. Where they contradict, the rule says what it takes for likely, and within what limits.
"""

from collections.abc import Sequence
from enum import StrEnum
from fractions import Fraction
from typing import NamedTuple

Point = tuple[int, int]
"""Batch size, requested bytes."""


class Kind(StrEnum):
    """How sure a rule is."""

    CONSTANT = "constant"
    """The same in all passes."""
    AFFINE = "affine"
    """On one line in all passes."""
    SATURATED = "saturated"
    """Grew, and then less than its line or not at all: a workspace bounded by the size of the device."""
    UNEVEN = "uneven"
    """Short-lived, and not on a line: a workspace of an algorithm that depends on the size."""
    CURVED = "curved"
    """Not short-lived, and not on a line."""
    UNMATCHED = "unmatched"
    """Only in the pass at the largest size."""


class Curve(NamedTuple):
    """A parabola through one point; mostly a line."""

    batch_size: int
    size: int
    slope: Fraction = Fraction(0)
    """Bytes per sample."""
    bend: Fraction = Fraction(0)
    other: int = 0
    """Batch size of a second point that the bend leaves where it is."""
    cap: int | None = None
    """Bytes it never exceeds."""

    def at(self, batch_size: int) -> int:
        """Whole bytes, rounded up. In whole numbers: asked for thousands of requests a replay, fractions take ten times as long."""
        above, below = self.slope.as_integer_ratio()
        if self.bend:
            bend, by = self.bend.as_integer_ratio()
            above, below = above * by + bend * (batch_size - self.other) * below, below * by
        size = self.size - (self.batch_size - batch_size) * above // below
        return size if self.cap is None else min(size, self.cap)


class Rule(NamedTuple):
    """Sizes of one request at any batch size."""

    kind: Kind
    likely: Curve
    least: Curve
    most: Curve

    @property
    def is_doubtful(self) -> bool:
        """True if the likely size is not the only one in question."""
        return not self.likely == self.least == self.most


_EXACT_BYTES = 512
_EXACT_SHARE = Fraction(1, 1000)
"""A point off the line by no more than the larger of these is on it: headers, and the allocator's own granularity."""
_SATURATED_BELOW = Fraction(96, 100)
"""Of what was to be expected. Rounding to whole slices costs up to 1.5 % in recorded traces."""


def constant(batch_size: int, size: int) -> Rule:
    """The same size whatever the batch."""
    flat = Curve(batch_size, size)
    return Rule(Kind.CONSTANT, flat, flat, flat)


def fit(points: Sequence[Point], *, brief: bool, staged: bool = False) -> Rule:
    """The rule for a request from its sizes in several passes.

    Args:
        points: batch sizes ascending, without repetition; the last one is of the pass at the largest size.
        brief: ended within a few events of the same phase.
        staged: is the staging buffer of a reduction, so proportional until it is saturated.
    """
    batch_size, size = points[-1]
    flat = Curve(batch_size, size)
    proportional = flat._replace(slope=Fraction(size, batch_size))
    if len(points) == 1:
        # Exactly so many bytes per sample is evidence; the batch size itself is too rarely a divisor by accident.
        return Rule(Kind.UNMATCHED, flat if size % batch_size else proportional, flat, proportional)
    if all(other == size for _, other in points):
        return constant(batch_size, size)
    line = flat._replace(slope=_slope(points[-2], points[-1]))
    if staged and size < _SATURATED_BELOW * points[-2][1] * batch_size / points[-2][0]:
        rising = Curve(*points[-2], slope=Fraction(points[-2][1], points[-2][0]), cap=size)
        return Rule(Kind.SATURATED, rising, flat, flat if size == points[-2][1] else line)
    if line.slope > 0 and all(_is_on(line, point) for point in points[:-2]) and line.at(0) >= -_tolerance(size):
        checked = len(points) > 2 or _is_on(line, (0, 0)) or not brief
        return Rule(Kind.AFFINE, line, flat if staged or not checked else line, line if checked else proportional)
    return _brief(points, flat, line, proportional) if brief else _lasting(points, flat, line, proportional)


def _brief(points: Sequence[Point], flat: Curve, line: Curve, proportional: Curve) -> Rule:
    """A workspace grows at most in proportion in the long run, however it jumped between two sizes."""
    if len(points) > 2:
        rising = Curve(*points[-2], slope=_slope(points[-3], points[-2]), cap=flat.size)
        if rising.slope > 0 and points[-2][1] <= flat.size < _SATURATED_BELOW * rising._replace(cap=None).at(
            flat.batch_size
        ):
            return Rule(Kind.SATURATED, rising, flat, proportional)
    if line.slope <= 0:
        return Rule(Kind.UNEVEN, flat, flat, proportional)
    return Rule(Kind.UNEVEN, line if line.slope < proportional.slope else proportional, flat, proportional)


def _lasting(points: Sequence[Point], flat: Curve, line: Curve, proportional: Curve) -> Rule:
    """Growth that speeds up is taken for a parabola (a matrix of batch by batch), growth that slows down for a line."""
    batch_size, size = flat.batch_size, flat.size
    if line.slope <= 0:
        return Rule(Kind.CURVED, flat, flat, proportional)
    exceeds = line.at(0) < -_tolerance(size)  # Grew by more than its share of the batch.
    square = flat._replace(bend=Fraction(size, batch_size**2), other=-batch_size)
    most = square if exceeds else proportional
    bend = Fraction(0)
    if len(points) > 2:
        bend = (line.slope - _slope(points[-3], points[-2])) / (batch_size - points[-3][0])
    if bend <= 0:
        return Rule(Kind.CURVED, line, flat, most)
    parabola = line._replace(bend=bend, other=points[-2][0])
    far = 4 * batch_size
    likely = parabola if exceeds or parabola.at(far) < proportional.at(far) else proportional
    return Rule(Kind.CURVED, likely, line, parabola if parabola.at(far) > most.at(far) else most)


def _slope(low: Point, high: Point) -> Fraction:
    return Fraction(high[1] - low[1], high[0] - low[0])


def _tolerance(size: int) -> Fraction:
    return max(Fraction(_EXACT_BYTES), size * _EXACT_SHARE)


def _is_on(line: Curve, point: Point) -> bool:
    return abs(line.at(point[0]) - point[1]) <= _tolerance(point[1])
