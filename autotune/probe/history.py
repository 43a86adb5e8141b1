"""The CUDA caching allocator's own record of a process, as a ``Trace``.

PyTorch can note every allocation and free. The functions for it are private and have changed with the releases: where
they are missing or behave differently, there is no trace and the search does without.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Self

import torch

from autotune.model import Mark, PassPeaks, Phase, Trace

MAX_ENTRIES = 4_000_000
"""Of the allocator's ring buffer, which drops the oldest silently. A training step of a large model has about 10,000
events."""


class History:
    """Records from ``start`` on."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._marks: list[tuple[int, Phase, int, int]] = []
        self._passes: list[PassPeaks] = []
        self._before = self._count()

    @classmethod
    def start(cls, device: torch.device) -> Self | None:
        """Begin to record; None where this PyTorch or device cannot. No stacks are kept, which makes it cheap."""
        if device.type != "cuda" or torch.cuda.get_allocator_backend() != "native":
            return None
        try:
            torch.cuda.memory._record_memory_history("all", context=None, stacks="python", max_entries=MAX_ENTRIES)
            return cls(device)
        except (AttributeError, TypeError, KeyError, RuntimeError):  # another release's signature or statistics
            return None

    def _count(self) -> int:
        """Allocations and completed frees so far: the position in the record, without reading it."""
        stats = torch.cuda.memory_stats(self._device)
        return int(stats["active.all.allocated"]) + int(stats["active.all.freed"])

    def mark(self, phase: Phase, step: int, batch_size: int) -> None:
        """What follows belongs to this phase."""
        self._marks.append((self._count() - self._before, phase, step, batch_size))

    def add(self, peaks: PassPeaks) -> None:
        """A pass is complete."""
        self._passes.append(peaks)

    @property
    def passes(self) -> list[PassPeaks]:
        """The complete passes so far."""
        return list(self._passes)

    def stop(self) -> Trace | None:
        """End recording and read the record; None if events were lost or nothing was complete."""
        entries: list[dict[str, Any]] = []
        try:
            count = self._count() - self._before
            index = torch.cuda.current_device() if self._device.index is None else self._device.index
            entries = torch.cuda.memory._snapshot()["device_traces"][index]
            torch.cuda.memory._record_memory_history(None)
        except (AttributeError, TypeError, KeyError, IndexError, RuntimeError):  # as above; or the context is lost
            return None
        return make_trace(entries, count, self._marks, self._passes) if self._passes else None


def make_trace(
    entries: Iterable[Mapping[str, Any]],
    count: int,
    marks: Iterable[tuple[int, Phase, int, int]],
    passes: Iterable[PassPeaks],
) -> Trace | None:
    """Turn the allocator's entries into a trace; None if their number is not ``count``, so that some were dropped.

    Args:
        entries: with ``action``, ``addr``, ``size`` (requested bytes) and ``stream``, oldest first.
        count: allocations and completed frees that there must be.
        marks: position among these, phase, step, batch size.
        passes: taken over.
    """
    sizes: list[int] = []
    streams: list[int] = []
    events: list[int] = []
    alive: dict[int, int] = {}
    known_streams: dict[int, int] = {}
    position_of = [0]  # position among all counted entries -> position in ``events``
    for entry in entries:
        action = entry["action"]
        if action == "alloc":
            sizes.append(entry["size"])
            streams.append(known_streams.setdefault(entry["stream"], len(known_streams)))
            alive[entry["addr"]] = len(sizes)
            events.append(len(sizes))
        elif action == "free_completed":
            freed = alive.pop(entry["addr"], None)
            if freed is not None:  # else it was allocated before recording began
                events.append(-freed)
        else:
            continue
        position_of.append(len(events))
    if len(position_of) != count + 1:
        return None
    return Trace(
        sizes=tuple(sizes),
        streams=tuple(streams) if len(known_streams) > 1 else (),
        events=tuple(events),
        marks=tuple(Mark(position_of[at], phase, step, size) for at, phase, step, size in marks),
        passes=tuple(passes),
    )
