"""The phase hull on planted curves: exact where the curve is known, honest bounds everywhere, fewer probes than bisection."""

import random
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.memory.hull import Censored, Estimate, Guess, Hull, Sample, fit_hull
from autotune.model import Phase
from autotune.units import GIB, MIB

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


# Planted curves


def test_an_affine_curve_is_known_from_two_sizes() -> None:
    hull = fitted(affine, [4, 16])
    assert hull.largest_within(affine(60), step=1, bound=BOUND) == Guess(batch_size=60, low=16, high=61, wide=False)
    assert hull.largest_within(affine(61) - 1, step=1, bound=BOUND).batch_size == 60
    assert hull.peak(64).high_bytes == 4 * affine(16), "no bend was seen; proportion bounds it"
    assert [hull.peak(size).bytes for size in (1, 4, 10, 16, 64)] == [affine(size) for size in (1, 4, 10, 16, 64)]


def test_three_sizes_on_a_line_leave_no_doubt() -> None:
    hull = fitted(affine, [1, 4, 16])
    for size in (1, 3, 16, 64):
        assert hull.peak(size) == Estimate(affine(size), affine(size), affine(size))


def test_each_phase_has_a_curve_of_its_own_so_that_a_change_of_phase_is_no_bend() -> None:
    # GPT-2 124M: the optimizer decides below batch 3, backward above; one line through both would be 82 % low.
    hull = fit_hull(samples({Phase.BACKWARD: gpt2_backward, Phase.OPTIMIZER: gpt2_optimizer}, [1, 2, 8]))
    assert hull is not None
    assert hull.peak(32) == Estimate(gpt2_backward(32), gpt2_backward(32), gpt2_backward(32))
    assert hull.largest_within(gpt2_backward(30), step=1, bound=BOUND) == Guess(30, 8, 31, wide=False)
    assert hull.peak(2).bytes == 3102 * MIB


def test_an_even_bend_is_the_doubt_and_becomes_the_guess_once_the_line_was_refuted() -> None:
    sizes = [1, 4, 16, 64, 256, 512]
    limit_bytes = quadratic(1000)
    hull = fitted(quadratic, sizes)
    assert hull.peak(1000).low_bytes < quadratic(1000) == hull.peak(1000).high_bytes
    assert hull.largest_within(limit_bytes, step=1, bound=BOUND).batch_size == 1024, "the line says more than twice"

    hull = fitted(quadratic, sizes, Censored(1024, limit_bytes + 1, Phase.BACKWARD))
    assert hull.largest_within(limit_bytes, step=1, bound=BOUND) == Guess(1000, 512, 1024, wide=False)


def test_an_out_of_memory_bends_the_curve_of_its_own_phase() -> None:
    curves: dict[Phase, Curve] = {Phase.FORWARD: lambda size: 5000 + 7 * size, Phase.BACKWARD: quadratic}
    hull = fit_hull(samples(curves, [1, 4, 16, 32]), [Censored(128, quadratic(90) + 1, Phase.BACKWARD)])
    assert hull is not None
    assert hull.peak(128).bytes == quadratic(128)
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
    assert hull.peak(20) == Estimate((120 + 165) // 2, 120, 165)
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
    estimate = hull.peak(9)
    assert estimate.bytes == 110 + 5 * 6
    assert estimate.high_bytes == estimate.bytes + 10 + 2 * 10 * 6 // 2


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
    estimate = hull.peak(4)
    assert (estimate.low_bytes, estimate.bytes, estimate.high_bytes) == (400, 410, 420)


def test_a_miss_within_the_noise_moves_the_guess_by_one_step() -> None:
    hull = fitted(affine, [4, 16, 64], Censored(80, affine(80) + 10, Phase.BACKWARD), noise_bytes=20)
    assert hull.largest_within(affine(80), step=1, bound=BOUND).batch_size == 79


# Readings no convex curve can have


def test_a_hole_is_stepped_over_and_widens_the_bounds() -> None:
    hull = fitted(lambda size: affine(size) + (50 if size == 8 else 0), [1, 4, 8, 16])
    assert hull.largest_within(affine(60), step=1, bound=BOUND).batch_size == 60
    estimate = hull.peak(60)
    assert (estimate.bytes, estimate.high_bytes) == (affine(60), affine(60) + 50)
    assert hull.peak(8).high_bytes == affine(8) + 50


def test_an_out_of_memory_below_a_size_that_ran_is_a_hole() -> None:
    hull = fitted(affine, [1, 4, 16], Censored(8, affine(8) + 50, Phase.BACKWARD))
    assert hull.largest_within(affine(60), step=1, bound=BOUND).batch_size == 60
    assert hull.peak(8).high_bytes == affine(8) + 50


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
    assert hull.peak(1).high_bytes == 999
    assert hull.largest_within(2000, step=1, bound=BOUND) == Guess(400, 100, BOUND + 1, wide=False)
    assert hull.largest_within(800, step=1, bound=BOUND).low == 0


# Little knowledge


def test_one_size_gives_a_proportional_guess_that_is_called_wide() -> None:
    hull = fitted(lambda size: 100 * size, [4])
    assert hull.largest_within(1000, step=1, bound=BOUND) == Guess(10, 4, BOUND + 1, wide=True)
    assert hull.peak(10) == Estimate(1000, 400, 1000)
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
    assert hull.peak(64).bytes == 1000 + 160 * 4
    assert hull.peak(64).low_bytes == affine(64)
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
        assert hull.peak(40).low_bytes == 5000


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


# Properties


@dataclass(frozen=True)
class Planted:
    """A maximum of affine functions: fixed part and slope of each."""

    pieces: tuple[tuple[int, int], ...]

    def __call__(self, size: int) -> int:
        return max([fixed + slope * size for fixed, slope in self.pieces] + [0])


lines = st.tuples(st.integers(-(10**6), 10**6), st.integers(0, 10**4) | st.integers(0, 3))
planted = st.builds(Planted, st.lists(lines, min_size=1, max_size=5).map(tuple))
three_sizes = st.lists(st.integers(1, 400), min_size=3, max_size=8, unique=True)


@settings(deadline=None, derandomize=True, max_examples=300)
@given(
    curves=st.fixed_dictionaries({Phase.FORWARD: planted, Phase.BACKWARD: planted}),
    sizes=three_sizes,
    limit_bytes=st.integers(0, 4 * 10**6),
    step=st.integers(1, 8),
    bound=st.integers(1, 600),
    noise_bytes=st.sampled_from([0, 0, 1, 1000, 10**5]),
    draw=st.randoms(use_true_random=False),
)
def test_the_true_limit_lies_between_the_bounds_of_the_guess(
    curves: dict[Phase, Planted],
    sizes: list[int],
    limit_bytes: int,
    step: int,
    bound: int,
    noise_bytes: int,
    draw: random.Random,
) -> None:
    ran: list[Sample] = []
    censored: list[Censored] = []
    for size in sizes:
        peaks = {}
        for phase, curve in curves.items():
            if curve(size) > limit_bytes and draw.random() < 0.5 and len(sizes) - len(censored) > 3:
                censored.append(Censored(size, draw.randint(limit_bytes + 1, curve(size)), phase))
                break
            peaks[phase] = curve(size) + draw.randint(0, noise_bytes) - noise_bytes // 2
        ran.append(Sample(size, peaks))
    hull = fit_hull(ran, censored, noise_bytes=noise_bytes)
    assert hull is not None

    def total(size: int) -> int:
        return max(curve(size) for curve in curves.values())

    guess = hull.largest_within(limit_bytes, step=step, bound=bound)
    true = step * largest(lambda count: total(step * count) <= limit_bytes, bound // step)
    assert guess.low <= true < guess.high
    covered = min(max((s.batch_size for s in ran if phase in s.peaks), default=0) for phase in curves)
    for size in range(1, 500, 7):
        estimate = hull.peak(size)
        assert estimate.low_bytes <= total(size)
        assert estimate.high_bytes >= total(size) or size > covered


@settings(deadline=None, derandomize=True, max_examples=300)
@given(
    others=st.fixed_dictionaries({Phase.FORWARD: planted, Phase.BACKWARD: planted}),
    fixed=st.integers(0, 10**6),
    slope=st.integers(1, 10**4),
    first=st.integers(1, 300),
    apart=st.integers(1, 300),
    before=st.lists(st.integers(1, 300), max_size=5),
    draw=st.randoms(use_true_random=False),
)
def test_the_guess_is_exact_once_the_two_largest_sizes_lie_on_the_piece_of_the_limit(
    others: dict[Phase, Planted],
    fixed: int,
    slope: int,
    first: int,
    apart: int,
    before: list[int],
    draw: random.Random,
) -> None:
    second = first + apart
    true = draw.randint(second, 2 * second)
    limit_bytes = fixed + slope * true + draw.randrange(slope)

    def beneath(piece: tuple[int, int]) -> bool:
        return all(piece[0] + piece[1] * size <= fixed + slope * size for size in (first, true + 1))

    curves = {phase: Planted(tuple(filter(beneath, curve.pieces))) for phase, curve in others.items()}
    curves[Phase.BACKWARD] = Planted((*curves[Phase.BACKWARD].pieces, (fixed, slope)))
    hull = fit_hull(samples(curves, {first, second, *(size for size in before if size < first)}))
    assert hull is not None
    assert hull.largest_within(limit_bytes, step=1, bound=BOUND).batch_size == true


peaks_of_any_kind = st.dictionaries(
    st.sampled_from(list(Phase)), st.integers(0, 10**12) | st.integers(0, 9), max_size=3
)
any_samples = st.lists(st.builds(Sample, st.integers(1, 300), peaks_of_any_kind), max_size=8)
any_bounds = st.lists(
    st.builds(Censored, st.integers(1, 300), st.integers(0, 10**12), st.none() | st.sampled_from(list(Phase))),
    max_size=4,
)


@settings(deadline=None, derandomize=True, max_examples=400)
@given(
    ran=any_samples,
    censored=any_bounds,
    noise_bytes=st.sampled_from([0, 1, 10**6, 10**13]),
    limit_bytes=st.integers(0, 10**12) | st.integers(0, 9),
    step=st.integers(1, 64),
    bound=st.integers(0, 2000),
    draw=st.randoms(use_true_random=False),
)
def test_any_input_gives_an_answer_in_order_that_depends_on_nothing_else(
    ran: list[Sample],
    censored: list[Censored],
    noise_bytes: int,
    limit_bytes: int,
    step: int,
    bound: int,
    draw: random.Random,
) -> None:
    hull = fit_hull(ran, censored, noise_bytes=noise_bytes)
    if hull is None:
        assert not any(sample.peaks for sample in ran)
        return
    guess = hull.largest_within(limit_bytes, step=step, bound=bound)
    assert 0 <= guess.low <= guess.batch_size < guess.high <= bound // step * step + step
    assert guess.batch_size <= max(bound, 0)
    assert guess.batch_size <= max(step, 4 * max(sample.batch_size for sample in ran if sample.peaks))
    assert guess.low % step == guess.batch_size % step == guess.high % step == 0
    estimates = [hull.peak(size) for size in range(1, 2000, 37)]
    assert all(0 <= e.low_bytes <= e.bytes <= e.high_bytes for e in estimates)
    assert estimates == sorted(estimates, key=lambda e: e.low_bytes) == sorted(estimates, key=lambda e: e.high_bytes)

    again = fit_hull(draw.sample(ran, len(ran)), draw.sample(censored, len(censored)), noise_bytes=noise_bytes)
    assert again is not None
    assert again.largest_within(limit_bytes, step=step, bound=bound) == guess
    assert [again.peak(size) for size in range(1, 2000, 37)] == estimates


# Probes saved


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
