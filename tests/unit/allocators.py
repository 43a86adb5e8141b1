"""Short ways to make an allocator and to look at it."""

from autotune.memory.allocator import Block, CachingAllocator
from autotune.memory.allocator_config import AllocatorConfig
from autotune.units import MIB


def allocator(options: str = "", cap: int | None = None, streams: int = 1) -> CachingAllocator:
    """``cap`` in MiB."""
    return CachingAllocator(AllocatorConfig.parse(options), None if cap is None else cap * MIB, streams)


def figures(memory: CachingAllocator) -> tuple[float, float, int]:
    """Allocated and reserved MiB, and retries."""
    return memory.allocated_bytes / MIB, memory.reserved_bytes / MIB, memory.retries


def address(block: Block) -> int:
    """Of its first byte."""
    return block[0]


def held(block: Block) -> int:
    """Its size in bytes."""
    return block[1]
