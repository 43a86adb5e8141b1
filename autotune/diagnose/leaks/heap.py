"""What a process on the CPU really holds: counted by the kernel and the C library, not by resident pages. Linux with glibc.

Resident pages hide a leak: freed memory stays with the heap, and one page serves many objects. What is writable and
private (``VmData``, which a limit on the data segment counts) less what malloc holds free is exact to the byte for
malloc, and to an arena of 1 MiB for small objects of Python. Where the C library does not tell, pages have to do.
"""

import ctypes
from pathlib import Path

_STATUS = Path("/proc/self/status")
_M_MMAP_THRESHOLD = -3  # malloc.h
_LARGE = 128 << 10
"""What glibc maps by itself before it has adapted (M_MMAP_THRESHOLD_DEFAULT in malloc/malloc.c)."""


class _Info(ctypes.Structure):
    """``struct mallinfo2`` (mallinfo(3))."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    ]


class Heap:
    """Reads this process."""

    def __init__(self) -> None:
        library = ctypes.CDLL(None)
        self._look = getattr(library, "mallinfo2", None)  # glibc 2.33
        if self._look is not None:
            self._look.restype = _Info

    def map_large_tensors_alone(self) -> None:
        """Have each tensor of 128 KiB or more mapped by itself, so that what a step leaves is what it keeps; glibc would
        raise that bound as it sees fit, and leave holes in the heap."""
        adjust = getattr(ctypes.CDLL(None), "mallopt", None)
        if adjust is not None:
            adjust(_M_MMAP_THRESHOLD, _LARGE)

    def held_bytes(self) -> int:
        """Private memory in use."""
        if self._look is None:
            return _field("RssAnon:")
        return self.mapped_bytes() - int(self._look().fordblks)

    def mapped_bytes(self) -> int:
        """Private writable memory, used or not: what a limit on the data segment counts."""
        return _field("VmData:")


def _field(name: str) -> int:
    """Bytes; 0 where the kernel does not say."""
    lines = _STATUS.read_text().splitlines()
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(name)), 0)
