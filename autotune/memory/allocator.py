"""PyTorch's caching allocator as arithmetic: which block serves a request, what is reserved for it, when it gives up.

Follows ``c10/cuda/CUDACachingAllocator.cpp`` of torch 2.11 as far as it decides sizes and places, checked after every one
of 62,500 operations against the allocator itself. Not here: private pools of CUDA graphs, memory pools made by hand,
blocks used by several streams (the caller says when a block is free again), and a driver that refuses before the cap is
reached.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TypeAlias

from autotune.memory.addresses import AddressSpace
from autotune.memory.allocator_config import BLOCK_BYTES, SMALL_MAX_BYTES, SMALL_SEGMENT_BYTES, AllocatorConfig
from autotune.memory.pools import ADDRESS_BITS, ADDRESS_MASK, ExpandablePool, NativePool, Pool

Block: TypeAlias = tuple[int, int, Pool]
"""A block in use: address, bytes, and the pool it goes back to."""
_UNLIMITED = 1 << 62


class OutOfCap(Exception):
    """Raised by ``CachingAllocator.malloc`` where PyTorch raises ``OutOfMemoryError``."""

    def __init__(self, segment_bytes: int, allocated_bytes: int, reserved_bytes: int) -> None:
        super().__init__(f"{segment_bytes} bytes do not fit beside {reserved_bytes} reserved bytes")
        self.segment_bytes = segment_bytes
        """The segment that could not be had: what PyTorch's message says it tried to allocate."""
        self.allocated_bytes = allocated_bytes
        self.reserved_bytes = reserved_bytes


class CachingAllocator:
    """The memory of one process on one device.

    ``cap_bytes`` limits what is reserved, as ``torch.cuda.set_per_process_memory_fraction`` does. Expandable segments
    may end up to one page above it, since PyTorch checks before it rounds up to pages. None = there is no limit, and,
    as in PyTorch, no garbage collection either.
    """

    def __init__(self, config: AllocatorConfig, cap_bytes: int | None = None, streams: int = 1) -> None:
        self.allocated_bytes = 0
        """Of the blocks in use, rounding and slack included."""
        self.reserved_bytes = 0
        self.peak_reserved_bytes = 0
        """The most since the start; may be set back."""
        self.retries = 0
        """``num_alloc_retries``: how often all cached memory was given back to make room."""
        self._config = config
        self._cap_bytes = _UNLIMITED if cap_bytes is None else cap_bytes
        self._split_below = _UNLIMITED
        if config.max_split_bytes is not None and not config.expandable_segments:
            self._split_below = config.max_split_bytes
        self._takes_best_fit = config.max_split_bytes is None and not config.expandable_segments
        self._collect_above = None
        if config.garbage_collection_threshold and cap_bytes is not None:  # expandable segments are never idle
            self._collect_above = int(config.garbage_collection_threshold * cap_bytes)
        self._rounds_specially = bool(config.roundup_power2_divisions) or self._collect_above is not None
        self._searches = 0
        """In the large pools, so far: the clock of garbage collection."""
        addresses = AddressSpace()
        self._small = [_pool(config, addresses, 0, SMALL_SEGMENT_BYTES) for _ in range(streams)]
        self._large = [_pool(config, addresses, SMALL_MAX_BYTES, config.large_segment_bytes) for _ in range(streams)]

    def malloc(self, size: int, stream: int = 0) -> Block:
        """A block of at least ``size`` bytes for the ``stream``-th stream.

        Raises:
            OutOfCap: it would not fit even with all cached memory given back. What could be given back is.
        """
        rounded = (size + BLOCK_BYTES - 1) & -BLOCK_BYTES or BLOCK_BYTES
        if self._rounds_specially:
            rounded = self._prepare(size)
        pool = self._small[stream] if rounded <= SMALL_MAX_BYTES else self._large[stream]
        keys = pool.keys
        index = bisect_left(keys, rounded << ADDRESS_BITS)
        if index < len(keys) and (self._takes_best_fit or (index := pool.choose(index, rounded)) >= 0):
            key = keys.pop(index)
            start = key & ADDRESS_MASK
            held = key >> ADDRESS_BITS
            del pool.by_start[start]
            rest = held - rounded
            if rest > pool.slack_bytes and rounded < self._split_below:
                # Its neighbours are in use, so there is nothing to join it with.
                behind = start + rounded
                pool.by_start[behind] = rest
                pool.by_end[start + held] = rest
                insort(keys, rest << ADDRESS_BITS | behind)
                held = rounded
            else:
                del pool.by_end[start + held]
        else:
            start, held = self._grow(pool, rounded)
            rest = held - rounded
            if rest > pool.slack_bytes and rounded < self._split_below:
                pool.put(start + rounded, rest)
                held = rounded
        self.allocated_bytes += held
        return start, held, pool

    def free(self, block: Block) -> None:
        """Give a block back, once."""
        start, size, pool = block
        self.allocated_bytes -= size
        start = pool.put(start, size)
        if self._collect_above is not None:
            pool.idle_since[start] = self._searches

    def release_cached(self) -> None:
        """Give all cached memory that no block in use shares a segment or page with back to the driver."""
        for pool in (*self._small, *self._large):
            self.reserved_bytes -= pool.release()

    def _prepare(self, size: int) -> int:
        rounded = self._config.rounded(size)
        if rounded > SMALL_MAX_BYTES:
            self._searches += 1
        return rounded

    def _grow(self, pool: Pool, rounded: int) -> tuple[int, int]:
        segment_bytes = self._config.segment_bytes(rounded)
        if self._collect_above is not None:
            self._collect(self._collect_above)
        if self.reserved_bytes + segment_bytes > self._cap_bytes:
            self._make_room(pool, rounded, segment_bytes)
        start, held, added = pool.grow(rounded, segment_bytes)
        self.reserved_bytes += added
        self.peak_reserved_bytes = max(self.peak_reserved_bytes, self.reserved_bytes)
        return start, held

    def _make_room(self, pool: Pool, rounded: int, segment_bytes: int) -> None:
        released, enough = pool.release_oversize(rounded)
        self.reserved_bytes -= released
        if enough:  # a segment is no larger than the whole ones given back for it
            return
        self.release_cached()
        self.retries += 1
        if self.reserved_bytes + segment_bytes > self._cap_bytes:
            raise OutOfCap(segment_bytes, self.allocated_bytes, self.reserved_bytes)

    def _collect(self, threshold_bytes: int) -> None:
        """Give idle large segments back until reserved memory is below the threshold, those unused for longest first.

        Each round gives back all that are at least of average age, also beyond what is needed.
        """
        excess = self.reserved_bytes - threshold_bytes
        ages = {(pool, start): self._searches - pool.idle_since[start] for pool in self._large for start in pool.idle()}
        while excess > 0 and ages:
            average = sum(ages.values()) / len(ages)
            for (pool, start), age in list(ages.items()):
                if age >= average:
                    released = pool.give_back(start)
                    self.reserved_bytes -= released
                    excess -= released
                    del ages[pool, start]


def _pool(config: AllocatorConfig, addresses: AddressSpace, slack_bytes: int, page_bytes: int) -> Pool:
    if config.expandable_segments:
        return ExpandablePool(config, page_bytes)
    return NativePool(config, slack_bytes, addresses)
