"""What holds of the phase hull whatever the curve is."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.memory.hull import Censored, Sample, fit_hull
from autotune.model import Phase
from tests.unit.hull_curves import BOUND, Planted, largest, samples

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

    def fitting(within_bytes: int) -> int:
        return step * largest(lambda count: total(step * count) <= within_bytes, bound // step)

    for within_bytes in (limit_bytes, *map(total, range(1, 500, 50))):
        guess = hull.largest_within(within_bytes, step=step, bound=bound)
        assert guess.low <= fitting(within_bytes) < guess.high


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
    expected = [hull.peak_bytes(size) for size in range(1, 2000, 37)]
    assert min(expected) >= 0

    again = fit_hull(draw.sample(ran, len(ran)), draw.sample(censored, len(censored)), noise_bytes=noise_bytes)
    assert again is not None
    assert again.largest_within(limit_bytes, step=step, bound=bound) == guess
    assert [again.peak_bytes(size) for size in range(1, 2000, 37)] == expected
