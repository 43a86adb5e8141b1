"""The one estimator of growth: of seven steps of a probe, of a guard's window, of a diagnosis."""

import pytest

from autotune.diagnose.growth import Growth, fit, growth_of, slope

MIB = 1 << 20


def found(held: list[float], least: float = 0.1) -> Growth | None:
    return growth_of(list(enumerate(round(mib * MIB) for mib in held)), least * MIB)


def test_a_straight_line_has_its_rate_and_fits_whole() -> None:
    growth = found([2.0 * n for n in range(10)])
    assert growth == Growth(bytes_per_step=2.0 * MIB, evenness=1.0, fit=1.0, steps=9)


@pytest.mark.parametrize("at", [5, 14, 20])
def test_a_single_jump_does_not_touch_the_rate(at: int) -> None:
    growth = found([2.0 * n + (8.0 if n >= at else 0.0) for n in range(29)])
    assert growth is not None and growth.bytes_per_step == 2.0 * MIB


def test_stairs_have_the_rate_of_their_slope() -> None:
    growth = found([0.01 * n + 1.0 * (n // 4) for n in range(40)])
    assert growth is not None and growth.bytes_per_step == pytest.approx(0.26 * MIB, rel=0.05)


def test_an_outlier_moves_the_fit_and_not_the_rate() -> None:
    held = [2.0 * n for n in range(12)]
    held[5] += 30
    growth = found(held)
    assert growth is not None
    assert growth.bytes_per_step == pytest.approx(2.0 * MIB, rel=0.02)
    assert growth.fit < 0.6


@pytest.mark.parametrize(
    "held",
    [
        [],
        [1.0],
        [5.0] * 10,
        [0.0, 10.0, *[20.0] * 10],
        [0.0] * 6 + [50.0] * 6,
        [float(n % 4) for n in range(16)],
        [20.0 - n for n in range(12)],
        [10 * (1 - 0.6**n) for n in range(14)],
    ],
    ids=["nothing", "one", "flat", "warm-up", "a jump", "a saw", "falling", "levels off"],
)
def test_what_is_no_growth_is_none(held: list[float]) -> None:
    assert found(held) is None


def test_growth_below_what_is_worth_telling_is_none() -> None:
    held = [0.01 * n for n in range(10)]
    assert found(held, least=0.08) is not None
    assert found(held, least=0.1) is None


def test_steps_need_not_follow_each_other() -> None:
    readings = [(step, 3 * step) for step in (10, 20, 21, 40, 80)]
    assert slope(readings) == 3
    assert fit(readings, 3) == 1
    assert growth_of(readings, 10) == Growth(bytes_per_step=3, evenness=1, fit=1, steps=70)
