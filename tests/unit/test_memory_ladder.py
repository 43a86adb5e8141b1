"""Which sizes are recorded: few, telling, and sure to fit as long as nothing grows faster than the batch."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import gcd

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.memory.ladder import SHARE_OF_LIMIT, next_size
from autotune.model import PassPeaks
from autotune.units import GIB, MIB

ANY = 1 << 24
"""As where neither the user nor the data set sets a bound."""
Curve = Callable[[int], int]
"""Peak bytes by batch size."""


def peaks(batch_size: int, allocated_bytes: int) -> PassPeaks:
    return PassPeaks(batch_size, 3, allocated_bytes, 2 * allocated_bytes)


def climb(
    curve: Curve,
    *,
    cap: int = 40 * GIB,
    held: int = 0,
    unit: int = 1,
    largest: int = ANY,
    usable: Callable[[int], bool] = lambda size: True,
) -> list[int]:
    """All sizes of a recording."""
    tried: list[int] = []
    while True:
        passes = [peaks(size, curve(size)) for size in tried if usable(size)]
        size = next_size(passes, tried, unit=unit, cap_bytes=cap, held_bytes=held, largest=largest)
        if size is None:
            return tried
        tried.append(size)


def line(fixed: int, per_sample: int) -> Curve:
    return lambda size: fixed + per_sample * size


def limit(curve: Curve, cap: int) -> int:
    return next(size for size in range(1, ANY) if curve(size + 1) > cap)


def test_a_line_is_recorded_at_two_three_and_up_to_a_third_of_its_limit() -> None:
    curve = line(0, 300 * MIB)
    assert limit(curve, 40 * GIB) == 136
    assert climb(curve) == [2, 3, 43]


def test_a_share_that_is_a_multiple_of_an_earlier_size_gives_way_to_one_below() -> None:
    # A third of the limits are 43, 45 and 44.
    assert [climb(line(0, mib * MIB))[-1] for mib in (300, 290, 295)] == [43, 43, 43]


def test_what_no_batch_changes_is_left_out_of_the_proportion() -> None:
    curve = line(10 * GIB, 300 * MIB)
    assert limit(curve, 40 * GIB) == 102
    assert climb(curve, held=10 * GIB) == [2, 3, 31]
    assert climb(curve, held=0) == [2, 3], "whatever is not known to be held might grow with the batch"


@pytest.mark.parametrize(("held", "sizes"), [(15, [2, 3, 25]), (30, [2, 3, 11]), (36, [2, 3])])
def test_the_share_is_of_what_is_left_beside_what_is_held(held: int, sizes: list[int]) -> None:
    curve = line(held * GIB, 300 * MIB)
    assert climb(curve, held=held * GIB) == sizes
    assert curve(sizes[-1]) <= (held + SHARE_OF_LIMIT * (40 - held)) * GIB


def test_c06_what_grows_faster_than_the_batch_is_recorded_below_its_limit_where_small_sizes_show_it() -> None:
    curves: list[Curve] = [lambda size: (100 + size) * MIB + size**2 * MIB // 16, lambda size: size**2 * MIB]
    assert [limit(curve, 40 * GIB) for curve in curves] == [800, 202]
    assert [climb(curve) for curve in curves] == [[2, 3, 391], [2, 3, 2701]]


def test_growth_by_more_than_the_share_of_the_batch_is_followed_to_its_own_limit() -> None:
    """In proportion to what 3 samples take the limit would be 163, a third of which is 53."""
    assert climb(lambda size: (300 * size - 150) * MIB) == [2, 3, 43]


def test_small_sizes_below_a_constant_peak_are_followed_by_a_size_that_tells_more() -> None:
    """The optimizer's step decides up to 20 samples; after that a third of the limit is known to be near."""

    def curve(size: int) -> int:
        return max(2 * GIB, 100 * MIB * size)

    assert limit(curve, 40 * GIB) == 409
    assert climb(curve) == [2, 3, 19, 125]


def test_a_third_of_the_limit_that_is_not_twice_the_size_before_is_not_worth_a_pass() -> None:
    assert climb(line(0, 100 * MIB), largest=18) == [2, 3]
    assert climb(line(0, 100 * MIB), largest=19) == [2, 3, 5], "6 would be, but it is a multiple"


@pytest.mark.parametrize(("largest", "sizes"), [(1, []), (2, [2]), (3, [2, 3]), (60, [2, 3, 19])])
def test_no_size_is_above_the_largest_allowed(largest: int, sizes: list[int]) -> None:
    assert climb(line(0, 100 * MIB), largest=largest) == sizes


def test_a_first_pass_that_leaves_no_room_for_the_second_is_the_only_one() -> None:
    assert climb(line(0, 14 * GIB)) == [2]
    assert climb(line(0, 13 * GIB)) == [2, 3]


@pytest.mark.parametrize("unit", [2, 3, 8])
def test_sizes_are_multiples_of_the_unit(unit: int) -> None:
    sizes = climb(line(0, 20 * MIB), unit=unit)
    assert sizes[:2] == [2 * unit, 3 * unit]
    assert all(size % unit == 0 for size in sizes)
    assert sizes[2] > 200


def test_a_pass_that_cannot_be_used_is_replaced_by_one_at_the_next_multiple() -> None:
    assert climb(line(0, 100 * MIB), usable=lambda size: size > 2) == [2, 3, 133]
    assert climb(line(0, 100 * MIB), usable=lambda size: size > 3) == [2, 3, 4, 133]


def test_without_a_single_pass_that_can_be_used_there_are_five() -> None:
    assert climb(line(0, 100 * MIB), usable=lambda size: False) == [2, 3, 4, 5, 6]


def test_memory_that_does_not_depend_on_the_batch_is_followed_in_proportion() -> None:
    """A line through two equal peaks never reaches the cap: the proportion alone says how far to go."""
    assert climb(line(GIB, 0)) == [2, 3, 37, 487, 6427]
    assert climb(line(GIB, 0), largest=100) == [2, 3, 31]


lines = st.lists(st.tuples(st.integers(0, 4 * GIB), st.integers(0, 2 * GIB)), min_size=1, max_size=4)


@settings(deadline=None, derandomize=True)
@given(
    held=st.integers(0, 20 * GIB),
    lines=lines,
    cap=st.integers(8 * GIB, 80 * GIB),
    unit=st.sampled_from([1, 2, 8]),
    largest=st.integers(1, 5000),
)
def test_every_size_is_sure_to_fit_if_memory_is_a_maximum_of_lines(
    held: int, lines: Sequence[tuple[int, int]], cap: int, unit: int, largest: int
) -> None:
    def curve(size: int) -> int:
        return held + max(fixed + slope * size for fixed, slope in lines)

    sizes = climb(curve, cap=cap, held=held, unit=unit, largest=largest)
    assert len(sizes) <= 5
    assert all(size % unit == 0 and size <= largest for size in sizes)
    assert all(before < after for before, after in pairwise(sizes))
    # The very first size has nothing to go by; the second may take all there is.
    assert all(curve(size) <= cap for size in sizes[1:])
    assert all(curve(size) - held <= SHARE_OF_LIMIT * (cap - held) for size in sizes[2:])
    assert gcd(*(size // unit for size in sizes)) == 1 or len(sizes) < 2
