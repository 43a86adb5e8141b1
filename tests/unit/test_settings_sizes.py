"""Which sizes candidates are probed at, and the effective batch that is held exactly."""

import pytest

from autotune.errors import UsageError
from autotune.model import Settings
from autotune.search.settings.sizes import Sizes, share_of


def test_without_an_effective_batch_every_multiple_up_to_the_bound_is_legal() -> None:
    sizes = Sizes(unit=4, bound=100, accumulate=3)
    assert (sizes.down(50), sizes.down(1000), sizes.down(3)) == (48, 100, None)
    assert sizes.trained(Settings(), 48).accumulate == 3


def test_an_effective_batch_leaves_its_divisors() -> None:
    sizes = Sizes(unit=1, bound=1000, share=96)
    assert [sizes.down(n) for n in (200, 95, 40, 31, 23, 1)] == [96, 48, 32, 24, 16, 1]
    assert Sizes(unit=8, bound=1000, share=96).down(47) == 32
    assert Sizes(unit=7, bound=1000, share=96).down(96) is None


def test_the_next_larger_size_is_a_divisor_as_well() -> None:
    sizes = Sizes(unit=1, bound=1000, share=96)
    assert [sizes.up(n, 96) for n in (1, 5, 25, 33, 91, 96)] == [1, 6, 32, 48, 96, 96]
    assert Sizes(unit=8, bound=1000, share=96).up(9, 48) == 16
    assert Sizes(unit=1, bound=1000).up(9, 48) == 9


@pytest.mark.parametrize("size", [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 96])
def test_micro_batches_and_accumulation_make_the_effective_batch(size: int) -> None:
    trained = Sizes(unit=1, bound=1000, share=96).trained(Settings(), size)
    assert size * trained.accumulate == 96


def test_timing_needs_two_micro_batches_at_most() -> None:
    sizes = Sizes(unit=1, bound=1000, share=96)
    assert [sizes.timed(Settings(), n).accumulate for n in (96, 48, 32, 1)] == [1, 2, 2, 2]


def test_round_sizes_are_taken_where_they_cost_at_most_a_tenth() -> None:
    sizes = Sizes(unit=1, bound=10_000)
    assert [sizes.round(n) for n in (1, 3, 9, 17, 27, 250, 448, 1000)] == [1, 3, 9, 16, 26, 240, 448, 960]
    assert Sizes(unit=6, bound=1000).round(100) == 96
    assert Sizes(unit=1, bound=1000, share=100).round(60) == 50, "48 would be rounder and divides nothing"
    assert Sizes(unit=6, bound=1000).round(5) is None


@pytest.mark.parametrize(
    ("effective", "world", "unit", "near"),
    [(97, 2, 1, "96 or 98"), (96, 5, 1, "95 or 100"), (100, 2, 8, "96 or 112"), (3, 4, 1, "4")],
)
def test_an_effective_batch_that_cannot_be_held_is_refused_with_the_nearest_that_can(
    effective: int, world: int, unit: int, near: str
) -> None:
    with pytest.raises(UsageError) as refused:
        share_of(effective, world, unit)
    assert str(effective) in refused.value.message
    assert (f"multiples of {unit}" in refused.value.message) == (unit > 1)
    assert refused.value.hint == f"give --effective-batch {near}"


def test_the_effective_batch_is_shared_among_the_devices() -> None:
    assert share_of(192, 2, 8) == 96
    assert share_of(None, 2, 8) is None
    for effective, world in ((0, 1), (8, 0)):
        with pytest.raises(UsageError):
            share_of(effective, world, 1)


def test_one_device_and_one_sample_are_enough() -> None:
    assert share_of(1, 1, 1) == 1
