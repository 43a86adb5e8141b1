"""What holds for any sequence of requests under any options."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.memory.allocator import Block, OutOfCap
from autotune.units import KIB, MIB
from tests.unit.allocators import address, allocator, held

OPTIONS = (
    "",
    "max_split_size_mb:20",
    "garbage_collection_threshold:0.4",
    "roundup_power2_divisions:[2:4,8:2,>:8]",
    "garbage_collection_threshold:0.6,max_split_size_mb:24,large_segment_size_mb:22",
    "expandable_segments:True",
    "expandable_segments:True,max_split_size_mb:32",
)
SIZES = st.one_of(st.integers(1, 4 * KIB), st.integers(1, 12 * MIB), st.integers(10 * MIB, 50 * MIB))
STEPS = st.lists(st.tuples(st.booleans(), SIZES, st.integers(0, 1)), min_size=10, max_size=80)


@settings(deadline=None, derandomize=True)
@given(options=st.sampled_from(OPTIONS), cap=st.sampled_from((64, 150, None)), steps=STEPS)
def test_whatever_is_asked_blocks_do_not_overlap_and_all_memory_returns(
    options: str, cap: int | None, steps: list[tuple[bool, int, int]]
) -> None:
    memory = allocator(options, cap, streams=2)
    page = 20 * MIB if "expandable" in options else 0
    live: list[Block] = []
    for frees, number, stream in steps:
        if frees and live:
            memory.free(live.pop(number % len(live)))
        else:
            try:
                block = memory.malloc(number, stream)
            except OutOfCap as refused:
                assert cap is not None
                assert refused.reserved_bytes + refused.segment_bytes > cap * MIB
            else:
                assert held(block) >= number
                live.append(block)
        assert memory.allocated_bytes == sum(map(held, live)) <= memory.reserved_bytes
        assert cap is None or memory.reserved_bytes < cap * MIB + max(page, 1)
        assert no_two_overlap(live)
    for block in live:
        memory.free(block)
    memory.release_cached()
    assert (memory.allocated_bytes, memory.reserved_bytes) == (0, 0)


def no_two_overlap(blocks: list[Block]) -> bool:
    by_place = sorted(blocks, key=lambda block: (id(block[2]), address(block)))
    return all(
        first[2] is not second[2] or address(first) + held(first) <= address(second)
        for first, second in pairwise(by_place)
    )
