"""What expandable segments change, on sequences worked out by hand: pages of 20 MiB, of 2 MiB for small requests."""

import pytest

from autotune.memory.allocator import CachingAllocator, OutOfCap
from autotune.units import MIB
from tests.unit.allocators import address, allocator, figures, held


def test_expandable_segments_grow_by_pages_and_serve_requests_side_by_side() -> None:
    memory = allocator("expandable_segments:True")
    blocks = [memory.malloc(5 * MIB), memory.malloc(25 * MIB), memory.malloc(10 * MIB)]
    assert [address(block) for block in blocks] == [0, 5 * MIB, 30 * MIB]
    assert figures(memory) == (40, 40, 0)


def test_small_pages_are_2_mib() -> None:
    memory = allocator("expandable_segments:True")
    assert [address(memory.malloc(MIB)) for _ in range(3)] == [0, MIB, 2 * MIB]
    assert figures(memory) == (3, 4, 0)


def test_large_pages_can_be_set() -> None:
    memory = allocator("expandable_segments:True,large_segment_size_mb:32")
    memory.malloc(33 * MIB)
    assert figures(memory) == (33, 64, 0)


def test_expandable_blocks_keep_no_rest() -> None:
    memory = allocator("expandable_segments:True")
    assert held(memory.malloc(19 * MIB + 1)) == 19 * MIB + 512


def test_a_block_that_cannot_grow_is_preferred_to_a_tighter_one_that_can() -> None:
    memory = allocator("expandable_segments:True")
    first, second = memory.malloc(30 * MIB), memory.malloc(5 * MIB)
    memory.free(first)
    assert address(second) == 30 * MIB
    assert address(memory.malloc(5 * MIB)) == 0


def with_a_hole() -> CachingAllocator:
    """The first 30 of 35 MiB were freed and their page given back."""
    memory = allocator("expandable_segments:True")
    first = memory.malloc(30 * MIB)
    memory.malloc(5 * MIB)
    memory.free(first)
    memory.release_cached()
    return memory


def test_whole_free_pages_are_given_back_and_parts_of_pages_stay() -> None:
    memory = with_a_hole()
    assert figures(memory) == (5, 20, 0)


def test_holes_are_filled_again_before_the_segment_grows() -> None:
    memory = with_a_hole()
    assert address(memory.malloc(25 * MIB)) == 0
    assert figures(memory) == (30, 40, 0)


def test_holes_too_narrow_are_passed_over() -> None:
    memory = with_a_hole()
    assert address(memory.malloc(31 * MIB)) == 35 * MIB
    assert figures(memory) == (36, 60, 0)


def test_pages_are_given_back_under_pressure_and_counted_as_a_retry() -> None:
    memory = allocator("expandable_segments:True", cap=60)
    first = memory.malloc(30 * MIB)
    memory.malloc(5 * MIB)
    memory.free(first)
    memory.malloc(40 * MIB)
    assert figures(memory) == (45, 60, 1)
    with pytest.raises(OutOfCap):
        memory.malloc(20 * MIB)
    assert memory.retries == 2


def test_the_cap_is_checked_before_rounding_up_to_pages() -> None:
    memory = allocator("expandable_segments:True", cap=30)
    memory.malloc(30 * MIB)
    assert figures(memory) == (30, 40, 0)


def test_the_cap_is_checked_for_a_whole_segment_though_fewer_pages_were_needed() -> None:
    memory = allocator("expandable_segments:True", cap=55)
    memory.malloc(30 * MIB)
    with pytest.raises(OutOfCap):
        memory.malloc(16 * MIB)


def test_expandable_blocks_are_split_whatever_the_split_limit() -> None:
    memory = allocator("expandable_segments:True,max_split_size_mb:20")
    memory.free(memory.malloc(60 * MIB))
    memory.malloc(50 * MIB)
    assert figures(memory) == (50, 60, 0)


def test_expandable_blocks_above_the_split_limit_cost_smaller_requests_a_retry_at_the_cap() -> None:
    memory = allocator("expandable_segments:True,max_split_size_mb:20", cap=60)
    memory.free(memory.malloc(60 * MIB))
    memory.malloc(10 * MIB)
    assert figures(memory) == (10, 20, 1)
