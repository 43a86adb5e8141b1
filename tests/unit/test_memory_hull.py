"""The phase hull on planted curves: exact where the curve is known, honest bounds everywhere."""

import random
from collections.abc import Iterable

import pytest

from autotune.memory.hull import Censored, Guess, Hull, Sample, fit_hull
from autotune.model import Phase
from autotune.units import GIB, MIB
from tests.unit.hull_curves import (
    BOUND,
    Curve,
    affine,
    fitted,
    gpt2_backward,
    gpt2_optimizer,
    largest,
    quadratic,
    samples,
    three_mib_each,
    threshold,
)

# Planted curves


def test_an_affine_curve_is_known_from_two_sizes() -> None:
    hull = fitted(affine, [4, 16])
    assert hull.largest_within(affine(60), step=1, bound=BOUND) == Guess(batch_size=60, low=16, high=61, wide=False)
    assert hull.largest_within(affine(61) - 1, step=1, bound=BOUND).batch_size == 60
    assert [hull.peak_bytes(size) for size in (1, 4, 10, 16, 64)] == [affine(size) for size in (1, 4, 10, 16, 64)]


def test_three_sizes_on_a_line_leave_no_doubt() -> None:
    hull = fitted(affine, [1, 4, 16])
    for size in (1, 3, 16, 64):
        assert hull.peak_bytes(size) == affine(size)


def test_each_phase_has_a_curve_of_its_own_so_that_a_change_of_phase_is_no_bend() -> None:
    # GPT-2 124M: the optimizer decides below batch 3, backward above; one line through both would be 82 % low.
    hull = fit_hull(samples({Phase.BACKWARD: gpt2_backward, Phase.OPTIMIZER: gpt2_optimizer}, [1, 2, 8]))
    assert hull is not None
    assert hull.peak_bytes(32) == gpt2_backward(32)
    assert hull.largest_within(gpt2_backward(30), step=1, bound=BOUND) == Guess(30, 8, 31, wide=False)
    assert hull.peak_bytes(2) == 3102 * MIB


def test_an_even_bend_is_the_doubt_and_becomes_the_guess_once_the_line_was_refuted() -> None:
    sizes = [1, 4, 16, 64, 256, 512]
    limit_bytes = quadratic(1000)
    hull = fitted(quadratic, sizes)
    assert hull.largest_within(limit_bytes, step=1, bound=BOUND).batch_size == 1024, "the line says more than twice"

    hull = fitted(quadratic, sizes, Censored(1024, limit_bytes + 1, Phase.BACKWARD))
    assert hull.largest_within(limit_bytes, step=1, bound=BOUND) == Guess(1000, 512, 1024, wide=False)


def test_an_out_of_memory_bends_the_curve_of_its_own_phase() -> None:
    curves: dict[Phase, Curve] = {Phase.FORWARD: lambda size: 5000 + 7 * size, Phase.BACKWARD: quadratic}
    hull = fit_hull(samples(curves, [1, 4, 16, 32]), [Censored(128, quadratic(90) + 1, Phase.BACKWARD)])
    assert hull is not None
    assert hull.peak_bytes(128) == quadratic(128)
    assert hull.largest_within(quadratic(90), step=1, bound=BOUND) == Guess(90, 32, 128, wide=False)


def test_a_flat_curve_neither_divides_by_zero_nor_proposes_the_bound() -> None:
    hull = fitted(threshold, [1, 4, 16])
    assert hull.largest_within(1000, step=1, bound=BOUND) == Guess(64, 16, BOUND + 1, wide=False)


def test_where_a_bend_is_known_only_by_its_out_of_memory_the_middle_is_proposed() -> None:
    hull = fitted(threshold, [1, 4, 16], Censored(64, 1001, Phase.BACKWARD))
    assert hull.largest_within(1000, step=1, bound=BOUND) == Guess(40, 16, 64, wide=False)
    assert hull.largest_within(1000, step=1, bound=63) == Guess(40, 16, 64, wide=False)


def test_two_sizes_beyond_a_threshold_are_enough() -> None:
    hull = fitted(threshold, [1, 4, 16, 18], Censored(40, 1001, Phase.BACKWARD))
    assert hull.largest_within(1000, step=1, bound=BOUND) == Guess(20, 18, 21, wide=False)


def test_an_interval_is_bounded_by_its_chord_and_by_the_chords_beside_it() -> None:
    hull = fitted(lambda size: max(100 + size, 10 * size - 80), [1, 11, 31, 41])  # bends at 20
    assert hull.peak_bytes(20) == (120 + 165) // 2
    assert hull.largest_within(121, step=1, bound=BOUND) == Guess(14, 12, 21, wide=False)


def test_samples_beyond_the_limit_bracket_it() -> None:
    hull = fitted(quadratic, [10, 20, 30])
    guess = hull.largest_within(quadratic(25), step=1, bound=BOUND)
    assert 20 <= guess.low <= 25 < guess.high <= 30
    assert hull.largest_within(50, step=1, bound=BOUND).low == 0


# Noise


def noisy(curve: Curve, sizes: Iterable[int], noise_bytes: int, seed: int) -> Hull:
    jitter = random.Random(seed)
    return fitted(lambda size: curve(size) + jitter.randint(0, noise_bytes), sizes, noise_bytes=noise_bytes)


@pytest.mark.parametrize("seed", range(20))
def test_jitter_moves_a_prediction_by_no_more_than_its_bounds_say(seed: int) -> None:
    hull = noisy(three_mib_each, [1, 4, 16, 64, 256, 1024], 2 * MIB, seed)
    guess = hull.largest_within(8 * GIB, step=1, bound=BOUND)
    true = largest(lambda size: three_mib_each(size) <= 8 * GIB)
    assert abs(guess.batch_size - true) <= 3
    assert guess.low == 1024
    assert true < guess.high < true + 8


@pytest.mark.parametrize("seed", range(20))
def test_two_close_sizes_at_the_end_do_not_turn_jitter_into_a_slope(seed: int) -> None:
    hull = noisy(three_mib_each, [1, 64, 128, 129], 2 * MIB, seed)
    guess = hull.largest_within(three_mib_each(300), step=1, bound=BOUND)
    assert abs(guess.batch_size - 300) <= 4
    assert guess.low < 300 < guess.high


def test_a_dent_within_the_noise_takes_nothing_off_the_doubt() -> None:
    hull = fitted({1: 100, 2: 108, 3: 110}.__getitem__, [1, 2, 3], noise_bytes=10)
    assert hull.peak_bytes(9) == 110 + 5 * 6


@pytest.mark.parametrize("seed", range(20))
def test_jitter_on_a_flat_curve_is_no_growth(seed: int) -> None:
    hull = noisy(lambda size: 600 * MIB, [1, 2, 3, 4], 2 * MIB, seed)
    guess = hull.largest_within(8 * GIB, step=1, bound=BOUND)
    assert guess.batch_size == 16
    # Had each sample of memory that noise can hide been real, the limit would still lie beyond this.
    assert guess.high > 5000
    assert hull.largest_within(590 * MIB, step=1, bound=BOUND).low == 0


def test_close_sizes_under_noise_are_not_trusted_far() -> None:
    far = fitted(lambda size: 4 * GIB + MIB * size, [1, 8, 16], noise_bytes=64 * MIB)
    near = fitted(lambda size: 4 * GIB + MIB * size, [14, 15, 16], noise_bytes=64 * MIB)
    assert far.largest_within(8 * GIB, step=1, bound=BOUND).batch_size == 64
    assert near.largest_within(8 * GIB, step=1, bound=BOUND).batch_size == 32


def test_readings_of_one_size_that_differ_are_noise_and_the_largest_counts() -> None:
    hull = fit_hull([Sample(size, {Phase.FORWARD: 100 * size + extra}) for size in (1, 2, 4) for extra in (0, 10)])
    assert hull is not None
    assert hull.peak_bytes(4) == 410


def test_a_miss_within_the_noise_moves_the_guess_by_one_step() -> None:
    hull = fitted(affine, [4, 16, 64], Censored(80, affine(80) + 10, Phase.BACKWARD), noise_bytes=20)
    assert hull.largest_within(affine(80), step=1, bound=BOUND).batch_size == 79


# Readings no convex curve can have


def test_a_hole_is_stepped_over_and_widens_the_bounds() -> None:
    hull = fitted(lambda size: affine(size) + (50 if size == 8 else 0), [1, 4, 8, 16])
    assert hull.largest_within(affine(60), step=1, bound=BOUND).batch_size == 60
    assert hull.peak_bytes(60) == affine(60)
    assert hull.largest_within(affine(14), step=1, bound=BOUND).low < 14


def test_an_out_of_memory_below_a_size_that_ran_is_a_hole() -> None:
    hull = fitted(affine, [1, 4, 16], Censored(8, affine(8) + 50, Phase.BACKWARD))
    assert hull.largest_within(affine(60), step=1, bound=BOUND).batch_size == 60
    assert hull.largest_within(affine(14), step=1, bound=BOUND).low < 14


def test_a_curve_that_grows_ever_slower_is_followed_by_its_latest_slope() -> None:
    # A workspace that stops growing at 40: above it 5 bytes a sample are true, the chord from batch 1 says 14.
    def saturating(size: int) -> int:
        return 100 + 5 * size + 30 * min(size, 40)

    hull = fitted(saturating, [1, 16, 40, 64, 128])
    guess = hull.largest_within(saturating(200), step=1, bound=BOUND)
    assert guess.batch_size == 200
    assert guess.high > 200
    assert hull.largest_within(saturating(600), step=1, bound=BOUND).high > 600


def test_falling_readings_are_a_flat_curve() -> None:
    hull = fitted(lambda size: 1000 - size, [1, 10, 100])
    assert hull.largest_within(2000, step=1, bound=BOUND) == Guess(400, 100, BOUND + 1, wide=False)
    assert hull.largest_within(800, step=1, bound=BOUND).low == 0


# Little knowledge


def test_one_size_gives_a_proportional_guess_that_is_called_wide() -> None:
    hull = fitted(lambda size: 100 * size, [4])
    assert hull.largest_within(1000, step=1, bound=BOUND) == Guess(10, 4, BOUND + 1, wide=True)
    assert hull.peak_bytes(10) == 1000
    assert hull.largest_within(10**9, step=1, bound=BOUND).batch_size == 16


def test_one_size_above_the_limit_points_below_it() -> None:
    assert fitted(lambda size: 100 * size, [64]).largest_within(1650, step=1, bound=BOUND) == Guess(
        16, 0, 64, wide=True
    )


def test_nothing_that_ran_gives_no_hull() -> None:
    assert fit_hull([]) is None
    assert fit_hull([Sample(4, {})], [Censored(4, 100, Phase.FORWARD)]) is None


def test_a_phase_seen_once_shares_the_fixed_part_of_the_others() -> None:
    # Evaluation runs in the long form only, here at 16.
    hull = fit_hull([*samples({Phase.FORWARD: affine}, [4, 16, 64]), Sample(16, {Phase.EVALUATE: 1160})])
    assert hull is not None
    assert hull.peak_bytes(64) == 1000 + 160 * 4
    assert hull.largest_within(1000 + 160 * 8, step=1, bound=BOUND) == Guess(128, 16, 183, wide=False)


def test_phases_that_ran_before_an_out_of_memory_count_and_prove_nothing_about_the_others() -> None:
    ran = [*samples({Phase.FORWARD: affine, Phase.BACKWARD: affine}, [4, 8]), Sample(64, {Phase.FORWARD: affine(64)})]
    hull = fit_hull(ran, [Censored(64, 1600, Phase.BACKWARD)])
    assert hull is not None
    guess = hull.largest_within(1500, step=1, bound=BOUND)
    assert (guess.low, guess.high) == (8, 64)


def test_an_out_of_memory_in_a_phase_that_never_ran_bounds_all_the_same() -> None:
    for phase in (None, Phase.OPTIMIZER):
        hull = fitted(affine, [4, 16], Censored(32, 5000, phase))
        assert hull.largest_within(4000, step=1, bound=BOUND).high == 32
        assert hull.peak_bytes(40) == 5000


# How far, and in which steps


def test_no_size_beyond_four_times_the_largest_is_proposed_and_less_after_a_bend() -> None:
    assert fitted(affine, [1, 4, 16]).largest_within(10**9, step=1, bound=BOUND).batch_size == 64
    sizes, limit_bytes = [1, 4, 16, 64, 256], quadratic(1000)
    assert fitted(quadratic, sizes[:4]).largest_within(limit_bytes, step=1, bound=BOUND).batch_size == 256
    assert fitted(quadratic, sizes).largest_within(limit_bytes, step=1, bound=BOUND).batch_size == 512
    assert fitted(quadratic, sizes).largest_within(2 * limit_bytes, step=1, bound=BOUND).batch_size == 768


def test_an_out_of_memory_far_above_does_not_lift_the_reach() -> None:
    hull = fitted(threshold, [1, 2, 4], Censored(4096, 1001, Phase.BACKWARD))
    assert hull.largest_within(1000, step=1, bound=BOUND) == Guess(16, 4, 4096, wide=False)


@pytest.mark.parametrize(
    ("step", "bound", "expected"),
    [
        (8, BOUND, Guess(56, 16, 64, wide=False)),
        (8, 50, Guess(48, 16, 56, wide=False)),
        (8, 8, Guess(8, 8, 16, wide=False)),
        (8, 7, Guess(0, 0, 8, wide=False)),
        (32, BOUND, Guess(32, 0, 64, wide=False)),
    ],
)
def test_sizes_are_multiples_of_the_step_within_the_bound(step: int, bound: int, expected: Guess) -> None:
    assert fitted(affine, [1, 4, 16]).largest_within(affine(60), step=step, bound=bound) == expected


def test_where_nothing_fits_zero_is_proposed() -> None:
    assert fitted(affine, [1, 4, 16]).largest_within(900, step=1, bound=BOUND) == Guess(0, 0, 1, wide=False)


def test_senseless_input_is_named() -> None:
    with pytest.raises(ValueError, match="batch of 0"):
        fit_hull([Sample(0, {Phase.FORWARD: 1})])
    with pytest.raises(ValueError, match="batch of -3"):
        fit_hull([], [Censored(-3, 1, None)])
    with pytest.raises(ValueError, match="noise of -1 bytes"):
        fit_hull([], noise_bytes=-1)
    with pytest.raises(ValueError, match="step is 0"):
        fitted(affine, [1]).largest_within(1, step=0, bound=1)
