"""The caching allocator's rules, one by one, on sequences worked out by hand."""

import pytest

from autotune.memory.allocator import OutOfCap
from autotune.units import MIB
from tests.unit.allocators import address, allocator, figures, held

# Rounding, pools, segments


def test_a_block_is_a_multiple_of_512_bytes() -> None:
    memory = allocator()
    assert [held(memory.malloc(size)) for size in (1, 512, 513, 0)] == [512, 512, 1024, 512]
    assert memory.allocated_bytes == 2560


def test_small_requests_share_one_segment_of_2_mib() -> None:
    memory = allocator()
    first, second = memory.malloc(MIB), memory.malloc(MIB)
    assert address(second) == address(first) + MIB
    assert figures(memory) == (2, 2, 0)
    memory.malloc(1)
    assert memory.reserved_bytes == 4 * MIB


def test_requests_above_1_mib_do_not_use_the_small_pool() -> None:
    memory = allocator()
    memory.free(memory.malloc(MIB))
    memory.malloc(MIB + 1)
    assert memory.reserved_bytes == 22 * MIB


def test_small_requests_do_not_use_the_large_pool() -> None:
    memory = allocator()
    memory.free(memory.malloc(5 * MIB))
    memory.malloc(MIB)
    assert memory.reserved_bytes == 22 * MIB


def test_large_requests_below_10_mib_share_one_segment_of_20_mib() -> None:
    memory = allocator()
    blocks = [memory.malloc(5 * MIB) for _ in range(4)]
    assert [address(block) - address(blocks[0]) for block in blocks] == [0, 5 * MIB, 10 * MIB, 15 * MIB]
    assert figures(memory) == (20, 20, 0)


def test_requests_from_10_mib_on_get_a_segment_of_their_size_in_steps_of_2_mib() -> None:
    memory = allocator()
    memory.malloc(10 * MIB)
    assert memory.reserved_bytes == 10 * MIB
    memory.malloc(10 * MIB + 1)
    assert memory.reserved_bytes == 22 * MIB


def test_large_segments_can_be_set() -> None:
    memory = allocator("large_segment_size_mb:40")
    memory.malloc(5 * MIB)
    assert figures(memory) == (5, 40, 0)


def test_special_rounding_is_what_is_looked_for_and_handed_out() -> None:
    memory = allocator("roundup_power2_divisions:4")
    memory.free(memory.malloc(40 * MIB))
    assert held(memory.malloc(33 * MIB)) == 40 * MIB
    assert memory.reserved_bytes == 40 * MIB


# Splitting


def test_small_blocks_are_split_down_to_512_bytes() -> None:
    memory = allocator()
    block = memory.malloc(MIB)
    memory.malloc(MIB)
    memory.free(block)
    first, second = memory.malloc(MIB - 512), memory.malloc(512)
    assert address(second) == address(first) + MIB - 512
    assert figures(memory) == (2, 2, 0)


def test_a_large_block_keeps_a_rest_of_1_mib() -> None:
    memory = allocator()
    memory.free(memory.malloc(20 * MIB))
    assert held(memory.malloc(19 * MIB)) == 20 * MIB
    assert figures(memory) == (20, 20, 0)


def test_a_large_block_gives_away_a_rest_above_1_mib() -> None:
    memory = allocator()
    memory.free(memory.malloc(20 * MIB))
    assert held(memory.malloc(19 * MIB - 512)) == 19 * MIB - 512
    assert held(memory.malloc(MIB + 512)) == MIB + 512
    assert memory.reserved_bytes == 20 * MIB


def test_a_new_segment_is_split_like_any_block() -> None:
    assert held(allocator().malloc(11 * MIB)) == 12 * MIB
    assert held(allocator().malloc(11 * MIB - 512)) == 11 * MIB - 512


# Joining and choosing


def test_free_neighbours_are_joined() -> None:
    memory = allocator()
    blocks = [memory.malloc(5 * MIB) for _ in range(3)]
    for index in (0, 2, 1):
        memory.free(blocks[index])
    assert address(memory.malloc(20 * MIB)) == address(blocks[0])
    assert figures(memory) == (20, 20, 0)


def test_blocks_of_different_segments_are_not_joined() -> None:
    memory = allocator()
    for block in [memory.malloc(10 * MIB), memory.malloc(10 * MIB)]:
        memory.free(block)
    memory.malloc(20 * MIB)
    assert memory.reserved_bytes == 40 * MIB


def test_the_smallest_block_that_fits_is_taken() -> None:
    memory = allocator()
    blocks = [memory.malloc(size * MIB) for size in (30, 14, 20)]
    for block in blocks:
        memory.free(block)
    assert address(memory.malloc(13 * MIB)) == address(blocks[1])


def test_of_equal_blocks_the_one_at_the_lowest_address_is_taken() -> None:
    memory = allocator()
    blocks = [memory.malloc(5 * MIB) for _ in range(4)]
    memory.free(blocks[2])
    memory.free(blocks[0])
    assert address(memory.malloc(5 * MIB)) == address(blocks[0])


def test_streams_do_not_share_free_blocks() -> None:
    memory = allocator(streams=2)
    memory.free(memory.malloc(12 * MIB, stream=0))
    memory.malloc(12 * MIB, stream=1)
    assert memory.reserved_bytes == 24 * MIB
    memory.malloc(12 * MIB, stream=0)
    assert figures(memory) == (24, 24, 0)


# max_split_size


def test_oversize_blocks_are_not_for_smaller_requests() -> None:
    memory = allocator("max_split_size_mb:20")
    memory.free(memory.malloc(24 * MIB))
    memory.malloc(10 * MIB)
    assert figures(memory) == (10, 34, 0)


def test_oversize_blocks_are_handed_out_whole() -> None:
    memory = allocator("max_split_size_mb:20")
    memory.free(memory.malloc(24 * MIB))
    assert held(memory.malloc(20 * MIB)) == 24 * MIB
    assert figures(memory) == (24, 24, 0)


def test_oversize_blocks_20_mib_too_large_are_refused() -> None:
    memory = allocator("max_split_size_mb:20")
    memory.free(memory.malloc(42 * MIB))
    assert held(memory.malloc(22 * MIB)) == 22 * MIB
    assert held(memory.malloc(22 * MIB + 512)) == 42 * MIB
    assert memory.reserved_bytes == 64 * MIB


def test_how_much_too_large_they_may_be_can_be_set() -> None:
    memory = allocator("max_split_size_mb:20,max_non_split_rounding_mb:30")
    memory.free(memory.malloc(42 * MIB))
    assert held(memory.malloc(22 * MIB)) == 42 * MIB


def test_blocks_below_the_limit_are_split_as_ever() -> None:
    memory = allocator("max_split_size_mb:30")
    memory.free(memory.malloc(28 * MIB))
    assert held(memory.malloc(10 * MIB)) == 10 * MIB
    assert memory.reserved_bytes == 28 * MIB


# The cap


def test_reserved_memory_may_reach_the_cap() -> None:
    memory = allocator(cap=40)
    memory.malloc(24 * MIB)
    memory.malloc(16 * MIB)
    assert figures(memory) == (40, 40, 0)


def test_cached_memory_is_given_back_before_giving_up_and_counted_as_a_retry() -> None:
    memory = allocator(cap=40)
    memory.free(memory.malloc(24 * MIB))
    memory.malloc(30 * MIB)
    assert figures(memory) == (30, 30, 1)


def test_cached_memory_of_all_streams_and_pools_is_given_back() -> None:
    memory = allocator(cap=40, streams=2)
    memory.free(memory.malloc(24 * MIB, stream=1))
    memory.free(memory.malloc(1, stream=1))
    memory.malloc(40 * MIB, stream=0)
    assert figures(memory) == (40, 40, 1)


def test_segments_in_use_anywhere_are_kept() -> None:
    memory = allocator(cap=40)
    memory.malloc(5 * MIB)
    memory.free(memory.malloc(12 * MIB))
    with pytest.raises(OutOfCap) as caught:
        memory.malloc(22 * MIB)
    assert (caught.value.segment_bytes, caught.value.allocated_bytes) == (22 * MIB, 5 * MIB)
    assert caught.value.reserved_bytes == 20 * MIB
    assert figures(memory) == (5, 20, 1)


def test_after_running_out_smaller_requests_are_served() -> None:
    memory = allocator(cap=40)
    memory.malloc(24 * MIB)
    with pytest.raises(OutOfCap):
        memory.malloc(30 * MIB)
    memory.malloc(16 * MIB)
    assert figures(memory) == (40, 40, 1)


def test_one_oversize_block_is_given_back_before_all_others_and_is_no_retry() -> None:
    memory = allocator("max_split_size_mb:20", cap=60)
    for block in [memory.malloc(30 * MIB), memory.malloc(24 * MIB)]:
        memory.free(block)
    memory.malloc(5 * MIB)
    assert figures(memory) == (5, 50, 0)


def test_several_oversize_blocks_are_given_back_largest_first_until_they_hold_the_request() -> None:
    memory = allocator("max_split_size_mb:20", cap=90)
    for block in [memory.malloc(size * MIB) for size in (22, 36, 30)]:
        memory.free(block)
    memory.malloc(58 * MIB)
    assert figures(memory) == (58, 80, 0)


def test_oversize_blocks_smaller_than_the_request_do_not_save_a_retry() -> None:
    memory = allocator("max_split_size_mb:20", cap=60)
    memory.free(memory.malloc(24 * MIB))
    memory.free(memory.malloc(12 * MIB))
    memory.malloc(46 * MIB)
    assert figures(memory) == (46, 46, 1)


def test_without_a_split_limit_no_block_is_oversize() -> None:
    memory = allocator(cap=60)
    for block in [memory.malloc(30 * MIB), memory.malloc(24 * MIB)]:
        memory.free(block)
    memory.malloc(36 * MIB)
    assert figures(memory) == (36, 36, 1)


# Garbage collection


def test_above_the_threshold_the_segment_unused_for_longest_is_given_back() -> None:
    memory = allocator("garbage_collection_threshold:0.5", cap=100)
    memory.free(memory.malloc(40 * MIB))
    memory.free(memory.malloc(42 * MIB))
    memory.malloc(44 * MIB)
    assert figures(memory) == (44, 86, 0)


def test_segments_of_average_age_go_as_well_even_if_one_would_do() -> None:
    memory = allocator("garbage_collection_threshold:0.5", cap=100)
    for block in [memory.malloc(40 * MIB), memory.malloc(42 * MIB)]:
        memory.free(block)
    memory.malloc(44 * MIB)
    assert figures(memory) == (44, 44, 0)


def test_collection_goes_on_until_reserved_memory_is_below_the_threshold() -> None:
    memory = allocator("garbage_collection_threshold:0.5", cap=100)
    memory.free(memory.malloc(20 * MIB))
    memory.free(memory.malloc(30 * MIB))
    memory.malloc(40 * MIB)
    memory.malloc(42 * MIB)
    assert figures(memory) == (82, 82, 0)


def test_nothing_is_collected_at_the_threshold() -> None:
    memory = allocator("garbage_collection_threshold:0.5", cap=100)
    memory.free(memory.malloc(50 * MIB))
    memory.malloc(50 * MIB + 1)
    assert memory.reserved_bytes == 52 * MIB
    assert memory.retries == 1


def test_small_segments_are_not_collected() -> None:
    memory = allocator("garbage_collection_threshold:0.5", cap=100)
    memory.free(memory.malloc(MIB))
    memory.malloc(60 * MIB)
    memory.malloc(10 * MIB)
    assert figures(memory) == (70, 72, 0)


def test_a_search_of_the_small_pool_ages_nothing() -> None:
    memory = allocator("garbage_collection_threshold:0.5", cap=200)
    memory.free(memory.malloc(40 * MIB))
    for _ in range(5):
        memory.malloc(MIB)
    memory.free(memory.malloc(42 * MIB))
    memory.free(memory.malloc(44 * MIB))
    memory.malloc(46 * MIB)
    assert memory.reserved_bytes == (6 + 44 + 46) * MIB, (
        "40 and 42 MiB went: the latter is not younger than the average"
    )


def test_without_a_cap_nothing_is_collected() -> None:
    memory = allocator("garbage_collection_threshold:0.5")
    memory.free(memory.malloc(40 * MIB))
    memory.malloc(44 * MIB)
    assert memory.reserved_bytes == 84 * MIB
