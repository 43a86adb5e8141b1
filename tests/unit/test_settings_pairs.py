"""The paired test on step times: exact, and the same as counting every choice of signs."""

from itertools import product
from random import Random

import pytest

from autotune.search.settings.pairs import shorter


def test_eight_shorter_steps_of_eight_are_one_chance_in_256() -> None:
    assert shorter([1.0] * 8, [1.1 + n / 100 for n in range(8)]) == 1 / 256


def test_the_direction_counts() -> None:
    assert shorter([2.0, 2.1, 2.2, 2.3, 2.4], [1.0] * 5) == 1.0


def test_equal_pairs_say_nothing() -> None:
    assert shorter([1.0, 1.0], [1.0, 1.0]) == 1.0
    assert shorter([1.0, 1.0, 0.5], [1.0, 1.0, 1.0]) == 0.5
    assert shorter([], [1.0]) == 1.0


def test_what_is_left_over_of_the_longer_one_is_not_used() -> None:
    assert shorter([1.0, 1.0, 1.0], [2.0, 3.0]) == 1 / 4


def test_one_long_step_weighs_no_more_than_its_rank() -> None:
    """By the mean the first would be the longer one by far."""
    second = [1.1, 1.11, 1.12, 1.13, 1.14, 1.15, 1.16, 1.0]
    assert shorter([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 9.0], second) == 25 / 256
    assert shorter([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.05], second) == 2 / 256


@pytest.mark.parametrize("seed", range(20))
def test_it_is_the_count_of_all_choices_of_signs(seed: int) -> None:
    random = Random(seed)
    first, second = ([random.choice([1.0, 1.1, 1.2, 1.4, 1.7]) for _ in range(7)] for _ in range(2))
    differences = [b - a for a, b in zip(first, second, strict=True) if a != b]
    sizes = [abs(d) for d in differences]
    ranks = [sum(s < size for s in sizes) + (sum(s == size for s in sizes) + 1) / 2 for size in sizes]
    seen = sum(rank for rank, d in zip(ranks, differences, strict=True) if d > 0)
    sums = [
        sum(rank for rank, sign in zip(ranks, signs, strict=True) if sign)
        for signs in product((0, 1), repeat=len(ranks))
    ]
    assert shorter(first, second) == sum(one >= seen for one in sums) / len(sums)
