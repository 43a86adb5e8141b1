"""Growth that goes on is told with its rate; warm-up, caches that level off, cycles and noise are left alone."""

import math
import random

import pytest

from autotune.diagnose.growth import Growth
from autotune.runtime.leak import WARM_UP, WINDOW, Leak
from autotune.units import MIB

LOOKS = 400
EVERY = 10
BASE = 1000 * MIB


def found(held: list[float]) -> tuple[int, Growth] | None:
    """(look, growth) of the first alarm; held memory is in MiB above a base."""
    leak = Leak(MIB)
    for number, mib in enumerate(held):
        if growth := leak.look(EVERY * (number + 1), BASE + round(mib * MIB)):
            return number, growth
    return None


def noise(scale: float, seed: int = 1) -> list[float]:
    draw = random.Random(seed)
    return [draw.uniform(-scale, scale) for _ in range(LOOKS)]


LEAKS: dict[str, list[float]] = {
    "even": [0.5 * n for n in range(LOOKS)],
    "with noise": [0.5 * n + wobble for n, wobble in enumerate(noise(2))],
    "after a warm-up": [600 * (1 - math.exp(-n)) + 0.5 * n for n in range(LOOKS)],
    "in jumps of every fourth look": [2.0 * (n // 4) for n in range(LOOKS)],
    "with single peaks": [0.5 * n + (300 if n % 17 == 5 else 0) for n in range(LOOKS)],
    "with a cycle of batch sizes": [0.5 * n + 2 * math.sin(2 * math.pi * n / 8) for n in range(LOOKS)],
    "that begins late": [max(0.0, 0.5 * (n - 150)) for n in range(LOOKS)],
}


@pytest.mark.parametrize("kind", LEAKS)
def test_c28_a_leak_is_told_with_its_rate_within_five_percent(kind: str) -> None:
    alarm = found(LEAKS[kind])
    assert alarm is not None
    assert alarm[1].bytes_per_step == pytest.approx(0.5 * MIB / EVERY, rel=0.05)
    late = 150 if "late" in kind else 0
    assert alarm[0] < late + WARM_UP + 2 * WINDOW


CLEAN: dict[str, list[float]] = {
    "nothing": [0.0] * LOOKS,
    "noise": noise(30),
    "warm-up of the optimizer": [0.0, *[800.0] * (LOOKS - 1)],
    "warm-up of many kernels": [min(n, 12) * 20.0 for n in range(LOOKS)],
    "a cache that levels off": [500 * (1 - math.exp(-n / 15)) for n in range(LOOKS)],
    "a cache that levels off slowly, with noise": [
        200 * (1 - math.exp(-n / 20)) + wobble for n, wobble in enumerate(noise(1))
    ],
    "cyclic sizes": [100 * math.sin(2 * math.pi * n / 10) for n in range(LOOKS)],
    "a single jump": [0.0 if n < 100 else 400.0 for n in range(LOOKS)],
    "a jump an epoch that is given back": [float(n % 100 > 90) * 300 for n in range(LOOKS)],
    "a few bytes a step": [n * 512 * EVERY / MIB for n in range(LOOKS)],
    "a saw that garbage collection resets": [float(n % 12) * 5 for n in range(LOOKS)],
}


@pytest.mark.parametrize("kind", CLEAN)
def test_c28_what_settles_or_goes_back_is_no_leak(kind: str) -> None:
    assert found(CLEAN[kind]) is None
