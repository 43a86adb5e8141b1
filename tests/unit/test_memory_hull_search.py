"""Searches guided by the phase hull take fewer probes than bisection."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pytest

from autotune.memory.hull import Censored, Sample, fit_hull
from autotune.model import Phase
from autotune.units import GIB, MIB
from tests.unit.hull_curves import BOUND, Curve, Planted, gpt2_backward, gpt2_optimizer, largest, three_mib_each


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What a probe of a planted workload shows."""

    curves: Mapping[Phase, Curve]
    limit_bytes: int

    def fits(self, size: int) -> bool:
        return all(curve(size) <= self.limit_bytes for curve in self.curves.values())

    def peak(self, size: int) -> int:
        return max(curve(size) for curve in self.curves.values())


def by_bisection(workload: Workload) -> tuple[int, int]:
    """Limit and probes: growing by 4 while a line through what ran promises 8 times the size, by 2 otherwise."""
    probes, low, size = 0, 0, 1
    while workload.fits(size):
        probes, low = probes + 1, size
        slope = (workload.peak(low) - workload.peak(1)) / (low - 1) if low > 1 else workload.peak(1)
        promised = workload.peak(low) + slope * 7 * low < workload.limit_bytes
        size = low * (4 if promised else 2)
    probes, high = probes + 1, size
    while high - low > 1:
        probes, middle = probes + 1, (low + high) // 2
        low, high = (middle, high) if workload.fits(middle) else (low, middle)
    return low, probes


def by_hull(workload: Workload, jitter: Callable[[], int] = lambda: 0, noise_bytes: int = 0) -> tuple[int, int]:
    """Limit and probes: the guess, or the size after it where that one ran already; after two bad ones bisecting once.

    An out-of-memory tells no more than that the limit was not enough, the least it can tell.
    """
    ran: list[Sample] = []
    censored: list[Censored] = []
    low, high, bad = 0, BOUND + 1, 0
    while high - low > 1:
        hull = fit_hull(ran, censored, noise_bytes=noise_bytes)
        guess = hull.largest_within(workload.limit_bytes, step=1, bound=high - 1).batch_size if hull else 1
        trusted = bad < 2
        size = max(guess, low + 1) if trusted else min(2 * low, (low + high) // 2)
        peaks = {}
        for phase, curve in workload.curves.items():
            peak_bytes = curve(size) + jitter()
            if peak_bytes > workload.limit_bytes:
                censored.append(Censored(size, workload.limit_bytes + 1, phase))
                break
            peaks[phase] = peak_bytes
        fits = len(peaks) == len(workload.curves)
        low, high = (size, high) if fits else (low, size)
        bad = bad + (fits is not (size == guess)) if trusted else 0
        ran.append(Sample(size, peaks))
    return low, len(ran)


@pytest.mark.parametrize(
    ("curves", "limit_bytes", "bisecting", "guided"),
    [
        pytest.param({Phase.BACKWARD: three_mib_each}, 8 * GIB, 19, 8, id="affine"),
        pytest.param({Phase.BACKWARD: lambda size: 6 * GIB + 64 * MIB * size}, 8 * GIB, 11, 5, id="mostly fixed"),
        pytest.param(
            {Phase.BACKWARD: gpt2_backward, Phase.OPTIMIZER: gpt2_optimizer}, 40 * GIB, 12, 6, id="two phases"
        ),
        pytest.param(
            {Phase.BACKWARD: Planted(((100 * MIB, 20_185_088), (92 * MIB, 21_233_664), (64 * MIB, 21_600_666)))},
            40 * GIB,
            18,
            8,
            id="convolutions, whose peak moves",
        ),
        pytest.param(
            {Phase.FORWARD: lambda size: 600 * MIB + MIB * size + 4096 * size**2}, 8 * GIB, 17, 9, id="batch by batch"
        ),
        pytest.param(
            {Phase.BACKWARD: lambda size: max(600 * MIB, 500 * MIB + 7 * MIB * size)},
            8 * GIB,
            18,
            8,
            id="hidden by the process at first",
        ),
        pytest.param(
            {Phase.BACKWARD: lambda size: 600 * MIB + 100 * MIB * max(0, size - 16)}, 4 * GIB, 10, 7, id="threshold"
        ),
        pytest.param(
            {Phase.BACKWARD: lambda size: 500 * MIB + 60 * MIB * size + 20 * MIB * min(size, 132)},
            40 * GIB,
            17,
            8,
            id="workspace that stops growing",
        ),
        pytest.param(
            {Phase.BACKWARD: lambda size: 600 * MIB + 20 * MIB * (3 * size // 20)}, 8 * GIB, 19, 8, id="in small lumps"
        ),
    ],
)
def test_a_guided_search_finds_the_same_limit_in_fewer_probes(
    curves: Mapping[Phase, Curve], limit_bytes: int, bisecting: int, guided: int
) -> None:
    workload = Workload(curves=curves, limit_bytes=limit_bytes)
    limit = largest(workload.fits)
    assert by_bisection(workload) == (limit, bisecting)
    assert by_hull(workload) == (limit, guided)


def test_lumps_that_hide_the_slope_cost_hardly_more_than_bisecting() -> None:
    workload = Workload(
        curves={Phase.BACKWARD: lambda size: 600 * MIB + 512 * MIB * (3 * size // 512)}, limit_bytes=8 * GIB
    )
    assert by_bisection(workload) == (2559, 19)
    assert by_hull(workload) == (2559, 20)


@pytest.mark.parametrize("seed", range(20))
def test_jitter_costs_a_guided_search_one_probe_at_most(seed: int) -> None:
    workload = Workload(curves={Phase.BACKWARD: three_mib_each}, limit_bytes=8 * GIB)
    jitter = random.Random(seed)
    limit, probes = by_hull(workload, lambda: jitter.randint(-MIB, MIB), noise_bytes=2 * MIB)
    assert abs(limit - largest(workload.fits)) <= 1
    assert probes <= 9


def test_over_many_convex_curves_guiding_saves_nearly_half_the_probes_and_never_adds_to_them() -> None:
    draw = random.Random(0)
    spent = [0, 0]
    for _ in range(200):
        curves = {
            phase: Planted(tuple((draw.randint(-4000, 4000) * MIB, draw.randint(1, 200) * MIB // 4) for _ in range(4)))
            for phase in (Phase.FORWARD, Phase.BACKWARD)
        }
        workload = Workload(curves=curves, limit_bytes=draw.choice([8, 16, 40, 80]) * GIB)
        (limit, bisecting), (same, guided) = by_bisection(workload), by_hull(workload)
        assert same == limit
        assert guided <= bisecting
        spent = [spent[0] + bisecting, spent[1] + guided]
    assert spent[1] <= 0.55 * spent[0]
