"""Free memory of the caching allocator: blocks by size, joined with their neighbours, growing and shrinking by segments.

One pool holds what one stream may use of one size class.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort

from autotune.memory.addresses import AddressSpace
from autotune.memory.allocator_config import AllocatorConfig

ADDRESS_BITS = 48
ADDRESS_MASK = (1 << ADDRESS_BITS) - 1
_ROOM_BYTES = 1 << ADDRESS_BITS
"""Address space of an expandable segment. PyTorch reserves 1 1/8 of the device's memory, which a job that must stay
below the device's memory does not run out of."""


class Pool:
    """Free blocks, none of which touches another one."""

    __slots__ = ("_max_split_bytes", "_rounding_bytes", "by_end", "by_start", "idle_since", "keys", "slack_bytes")

    def __init__(self, config: AllocatorConfig, slack_bytes: int) -> None:
        self._max_split_bytes = config.max_split_bytes
        self._rounding_bytes = config.max_non_split_rounding_bytes
        self.keys: list[int] = []
        """``size << ADDRESS_BITS | start`` of each, ascending: by size, among equals by address."""
        self.by_start: dict[int, int] = {}
        """Size of each by its first byte's address."""
        self.by_end: dict[int, int] = {}
        """Size of each by the address behind its last byte."""
        self.slack_bytes = slack_bytes
        """A rest up to this size stays with the block that is handed out."""
        self.idle_since: dict[int, int] = {}
        """By address: the search after which a block was last put there. Kept for garbage collection only."""

    def put(self, start: int, size: int) -> int:
        """Add a free block, joined with those it touches; its address is returned."""
        keys, by_start, by_end = self.keys, self.by_start, self.by_end
        end = start + size
        before = by_end.pop(start, 0)
        if before:
            start -= before
            del keys[bisect_left(keys, before << ADDRESS_BITS | start)]
        after = by_start.pop(end, 0)
        if after:
            del keys[bisect_left(keys, after << ADDRESS_BITS | end)]
            end += after
        size = end - start
        by_start[start] = size
        by_end[end] = size
        insort(keys, size << ADDRESS_BITS | start)
        return start

    def take(self, start: int) -> int:
        """Remove the free block at ``start``; its size is returned."""
        size = self.by_start.pop(start)
        del self.by_end[start + size]
        del self.keys[bisect_left(self.keys, size << ADDRESS_BITS | start)]
        return size

    def choose(self, index: int, rounded: int) -> int:
        """Index of the key to serve ``rounded`` bytes from, given the best fit's; -1 = none will do."""
        limit = self._max_split_bytes
        if limit is None:
            return index
        size = self.keys[index] >> ADDRESS_BITS
        above = limit if rounded < limit else rounded + self._rounding_bytes
        return index if size < above else -1

    def grow(self, rounded: int, segment_bytes: int) -> tuple[int, int, int]:
        """A block for ``rounded`` bytes from the driver: address, size, and by how much reserved memory grew."""
        raise NotImplementedError

    def release(self) -> int:
        """Give all that can be back to the driver; how much it was."""
        raise NotImplementedError

    def release_oversize(self, rounded: int) -> tuple[int, bool]:
        """Give back free blocks that are never split: how much it was, and whether that is worth another attempt."""
        return 0, False

    def idle(self) -> list[int]:
        """Addresses of the segments that are free as a whole and given back as a whole."""
        return []

    def give_back(self, start: int) -> int:
        """Give an idle segment back to the driver; how much it was."""
        raise NotImplementedError


class NativePool(Pool):
    """Segments of fixed size, each given back only as a whole."""

    __slots__ = ("_addresses", "_segments")

    def __init__(self, config: AllocatorConfig, slack_bytes: int, addresses: AddressSpace) -> None:
        super().__init__(config, slack_bytes)
        self._addresses = addresses
        self._segments: dict[int, int] = {}

    def grow(self, rounded: int, segment_bytes: int) -> tuple[int, int, int]:
        start = self._addresses.reserve(segment_bytes)
        self._segments[start] = segment_bytes
        return start, segment_bytes, segment_bytes

    def release(self) -> int:
        return sum(self.give_back(start) for start in self.idle())

    def release_oversize(self, rounded: int) -> tuple[int, bool]:
        limit = self._max_split_bytes
        if limit is None:
            return 0, False
        wanted = max(rounded, limit)
        keys = self.keys
        index = bisect_left(keys, wanted << ADDRESS_BITS)
        if index < len(keys):
            return self.give_back(keys[index] & ADDRESS_MASK), True
        released = 0
        while released < wanted and keys and keys[-1] >> ADDRESS_BITS >= limit:
            released += self.give_back(keys[-1] & ADDRESS_MASK)
        return released, released >= wanted

    def idle(self) -> list[int]:
        starts = [key & ADDRESS_MASK for key in self.keys]
        return [start for start in starts if self._segments.get(start) == self.by_start[start]]

    def give_back(self, start: int) -> int:
        size = self._segments.pop(start)
        self._addresses.release(start, size)
        return self.take(start)


class ExpandablePool(Pool):
    """One segment that is backed by memory page by page, and given back page by page."""

    __slots__ = ("_page_bytes", "_unmapped", "_unmapped_starts")

    def __init__(self, config: AllocatorConfig, page_bytes: int) -> None:
        super().__init__(config, slack_bytes=0)
        self._page_bytes = page_bytes
        self._unmapped_starts = [0]
        self._unmapped = {0: _ROOM_BYTES // page_bytes * page_bytes}

    def choose(self, index: int, rounded: int) -> int:
        """Blocks that could grow count with the size they could grow to, so that those which cannot go first."""
        keys = self.keys
        reach = self._reach(keys[index])
        while index + 1 < len(keys):
            following = self._reach(keys[index + 1])
            if following >= reach:
                break
            index += 1
            reach = following
        return super().choose(index, rounded)

    def grow(self, rounded: int, segment_bytes: int) -> tuple[int, int, int]:
        """Map pages at the lowest address with room, beginning with a free block just before it."""
        start = self._lowest(rounded)
        held = self.by_start.get(start, 0)
        mapped = 0
        while held < rounded:
            mapped += self._map(start + held, rounded - held)
            held = self.by_start[start]
        self.take(start)
        return start, held, mapped

    def release(self) -> int:
        return sum(self._unmap(key & ADDRESS_MASK) for key in list(self.keys))

    def _reach(self, key: int) -> int:
        size = key >> ADDRESS_BITS
        return size + self._unmapped.get((key & ADDRESS_MASK) + size, 0)

    def _lowest(self, rounded: int) -> int:
        by_start, unmapped = self.by_start, self._unmapped
        for hole in self._unmapped_starts:
            start = hole - self.by_end.get(hole, 0)
            end = start
            while end - start < rounded and (size := by_start.get(end) or unmapped.get(end)):
                end += size
            if end - start >= rounded:
                return start
        raise AssertionError("the last unmapped range has room for everything")

    def _map(self, start: int, wanted: int) -> int:
        room = self._unmapped.pop(start)
        size = min(-(-wanted // self._page_bytes) * self._page_bytes, room)
        index = bisect_left(self._unmapped_starts, start)
        if size < room:
            self._unmapped_starts[index] = start + size
            self._unmapped[start + size] = room - size
        else:
            del self._unmapped_starts[index]
        self.put(start, size)
        return size

    def _unmap(self, start: int) -> int:
        """Give back the whole pages inside a free block."""
        page = self._page_bytes
        end = start + self.by_start[start]
        first, last = -(-start // page) * page, end // page * page
        if first >= last:
            return 0
        self.take(start)
        if start < first:
            self.put(start, first - start)
        if last < end:
            self.put(last, end - last)
        self._add_unmapped(first, last)
        return last - first

    def _add_unmapped(self, first: int, last: int) -> None:
        starts, unmapped = self._unmapped_starts, self._unmapped
        index = bisect_right(starts, first)
        if last in unmapped:
            del starts[index]
            last += unmapped.pop(last)
        if index and starts[index - 1] + unmapped[starts[index - 1]] == first:
            first = starts[index - 1]
        else:
            starts.insert(index, first)
        unmapped[first] = last - first
