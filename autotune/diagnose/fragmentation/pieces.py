"""The caching allocator's snapshot -> how its memory is cut, and which requests had to wait for its cache. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from autotune.model import Pieces, Squeeze

MAX_SQUEEZES = 16
"""So many of the last retries are kept."""


def pieces_of(segments: Iterable[Mapping[str, Any]], device_index: int) -> Pieces:
    """How the memory of one device is cut.

    ``segments``: of ``torch.cuda.memory._snapshot()``: ``device``, ``total_size``, ``segment_type`` (``large`` or
    ``small``) and ``blocks`` with ``size`` and ``state`` (``inactive`` = free).
    """
    allocated = reserved = split = largest = count = 0
    for segment in segments:
        if segment["device"] != device_index:
            continue
        blocks = segment["blocks"]
        free = [block["size"] for block in blocks if block["state"] == "inactive"]
        reserved += segment["total_size"]
        allocated += sum(block["size"] for block in blocks if block["state"] == "active_allocated")
        count += len(free)
        if len(free) < len(blocks):
            split += sum(free)
        if segment.get("segment_type") == "large":
            largest = max([largest, *free])
    return Pieces(
        allocated_bytes=allocated,
        reserved_bytes=reserved,
        inactive_split_bytes=split,
        largest_free_bytes=largest,
        free_blocks=count,
    )


def failed_request(entries: Iterable[Mapping[str, Any]]) -> int | None:
    """Bytes of the last request that was refused, of the allocator's own record; None = there is none in it."""
    return next((entry["size"] for entry in reversed(list(entries)) if entry["action"] == "oom"), None)


def squeezes_of(entries: Iterable[Mapping[str, Any]], allocated_bytes: int, reserved_bytes: int) -> tuple[Squeeze, ...]:
    """Requests before which the allocator gave segments back and then asked for a new one, the last few.

    Segments that go back because somebody empties the cache look the same where the next request needs a segment: it is
    for the caller to know how many retries there were.

    Args:
        entries: the record, oldest first: ``action`` and ``size``.
        allocated_bytes: requested by what was in use when it began.
        reserved_bytes: held when it began.
    """
    found: list[Squeeze] = []
    before: tuple[int, int] | None = None  # as of the first segment that went back
    grown = False
    for entry in entries:
        action, size = entry["action"], entry["size"]
        if action in ("segment_free", "segment_unmap"):
            before = before or (allocated_bytes, reserved_bytes)
            reserved_bytes -= size
        elif action in ("segment_alloc", "segment_map"):
            reserved_bytes += size
            grown = before is not None
        elif action == "alloc":
            if before is not None and grown:
                found.append(Squeeze(requested_bytes=size, allocated_bytes=before[0], reserved_bytes=before[1]))
            allocated_bytes += size
            before, grown = None, False
        elif action == "free_completed":
            allocated_bytes -= size
    return tuple(found[-MAX_SQUEEZES:])
