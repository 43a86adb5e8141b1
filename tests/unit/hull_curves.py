"""Curves of memory in the batch size, planted for the phase hull, and hulls of them."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from autotune.memory.hull import Censored, Hull, Sample, fit_hull
from autotune.model import Phase
from autotune.units import MIB

Curve = Callable[[int], int]
BOUND = 1 << 24


def largest(fits: Callable[[int], bool], bound: int = BOUND) -> int:
    return bisect_left(range(1, bound + 1), True, key=lambda size: not fits(size))


def samples(curves: Mapping[Phase, Curve], sizes: Iterable[int]) -> list[Sample]:
    return [Sample(size, {phase: curve(size) for phase, curve in curves.items()}) for size in sizes]


def fitted(curve: Curve, sizes: Iterable[int], *censored: Censored, noise_bytes: int = 0) -> Hull:
    hull = fit_hull(samples({Phase.BACKWARD: curve}, sizes), censored, noise_bytes=noise_bytes)
    assert hull is not None
    return hull


def affine(size: int) -> int:
    return 1000 + 7 * size


def quadratic(size: int) -> int:
    return 100 + size * size


def threshold(size: int) -> int:
    return 600 + 100 * max(0, size - 16)


def three_mib_each(size: int) -> int:
    return 600 * MIB + 3 * MIB * size


def gpt2_backward(size: int) -> int:
    return 2097 * MIB + 481_412_055 * size


def gpt2_optimizer(size: int) -> int:
    return 3102 * MIB


@dataclass(frozen=True)
class Planted:
    """A maximum of affine functions: fixed part and slope of each."""

    pieces: tuple[tuple[int, int], ...]

    def __call__(self, size: int) -> int:
        return max([fixed + slope * size for fixed, slope in self.pieces] + [0])
