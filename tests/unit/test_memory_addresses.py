"""Where segments go, as the driver was seen to place them."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.memory.addresses import AddressSpace
from autotune.units import MIB


class Space:
    """Addresses in the driver's MiB, relative to those of the first segment."""

    def __init__(self) -> None:
        self._space = AddressSpace()
        for size in (2, 24):  # what the context leaves
            self._space.reserve(size * MIB)
        self._origin: int | None = None
        self._held: dict[float, int] = {}

    def reserve(self, *sizes: int) -> list[float]:
        return [self._reserve(size) for size in sizes]

    def _reserve(self, size: int) -> float:
        address = self._space.reserve(size * MIB)
        self._origin = address if self._origin is None else self._origin
        place = (address - self._origin) / 2 / MIB
        self._held[place] = size
        return place

    def release(self, *places: float) -> None:
        assert self._origin is not None
        for place in places:
            self._space.release(int(place * 2 * MIB) + self._origin, self._held.pop(place) * MIB)


def test_chunks_are_multiples_of_32_mib_each_below_the_one_before() -> None:
    assert Space().reserve(32, 34, 148, 64) == [0, -64, -224, -288]


def test_what_a_segment_leaves_of_its_chunk_is_used_before_a_new_chunk() -> None:
    assert Space().reserve(20, 2, 12, 2) == [0, 20, -32, -20]


def test_the_newest_chunk_is_looked_through_first() -> None:
    assert Space().reserve(20, 22, 4) == [0, -32, -32 + 22]


def test_within_a_chunk_the_smallest_hole_that_fits_is_taken() -> None:
    space = Space()
    space.reserve(10, 2, 4, 16)
    space.release(0, 12)
    assert space.reserve(4, 8) == [12, 0]


def test_of_equal_holes_the_lowest_is_taken() -> None:
    space = Space()
    space.reserve(8, 8, 8, 8)
    space.release(16, 0)
    assert space.reserve(8) == [0]


def test_neighbouring_holes_are_one() -> None:
    space = Space()
    space.reserve(8, 8, 8, 8)
    space.release(0, 16, 8)
    assert space.reserve(24) == [0]


def test_holes_of_neighbouring_chunks_are_not_one() -> None:
    space = Space()
    space.reserve(10, 22, 22)
    space.release(0)
    assert space.reserve(16) == [-64]


def test_a_chunk_with_nothing_in_it_is_given_back_and_leaves_a_gap_for_smaller_ones() -> None:
    space = Space()
    space.reserve(32, 64, 32)
    space.release(-64)
    assert space.reserve(32) == [-32]


def test_a_gap_of_just_the_size_is_not_used() -> None:
    space = Space()
    space.reserve(32, 64, 32)
    space.release(-64)
    assert space.reserve(64) == [-160]


def test_the_highest_gap_is_filled_first_from_its_top() -> None:
    space = Space()
    space.reserve(32, 64, 32, 64, 32)
    space.release(-64, -160)
    assert space.reserve(32, 32, 32) == [-32, -128, -224]


def test_neighbouring_gaps_are_one() -> None:
    space = Space()
    space.reserve(32, 32, 32, 32, 32)
    space.release(-32, -96, -64)
    assert space.reserve(64) == [-64]


def test_a_gap_below_all_chunks_is_no_gap() -> None:
    space = Space()
    space.reserve(32, 32)
    space.release(-32)
    assert space.reserve(64) == [-64]


def test_what_the_context_leaves_lies_above_all_and_is_used_first() -> None:
    space = AddressSpace()
    first, second, third, fourth = (space.reserve(size * MIB) for size in (2, 20, 4, 20))
    assert fourth < first < second < third
    assert third - second == 2 * 20 * MIB


@settings(deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.booleans(), st.integers(1, 100)), max_size=60))
def test_segments_neither_overlap_nor_touch(steps: Sequence[tuple[bool, int]]) -> None:
    space = AddressSpace()
    held: dict[int, int] = {}
    for releases, number in steps:
        if releases and held:
            address = list(held)[number % len(held)]
            space.release(address, held.pop(address))
        else:
            size = number * 2 * MIB
            held[space.reserve(size)] = size
        ends = [0, *(address + size for address, size in sorted(held.items()))]
        assert all(end < start for end, start in zip(ends, sorted(held), strict=False))
