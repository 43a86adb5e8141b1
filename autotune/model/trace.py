"""The allocator's history of a probe, as small as it can be kept."""

from dataclasses import dataclass

from autotune.model.words import Phase


@dataclass(frozen=True, slots=True)
class Mark:
    """From here on everything belongs to this phase, until the next mark."""

    position: int
    """Index into ``Trace.events`` of the first event of the phase; may equal their number."""
    phase: Phase
    step: int
    """1-based training step; 0 while the model is built."""
    batch_size: int
    """Of the pass the step belongs to; 0 while the model is built, which depends on no batch."""


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """Allocations and frees of one process in the order the allocator saw them.

    One process trains several passes, each at a batch size of its own with an optimizer of its own, one after the
    other: ``marks`` tell them apart. Compared and hashed by identity, so that what is computed from it can be cached.
    """

    sizes: tuple[int, ...]
    """Requested bytes of each allocation, in the order they were made."""
    streams: tuple[int, ...]
    """Stream of each allocation: 0, 1, … in the order they appeared. Empty = all on one stream."""
    events: tuple[int, ...]
    """``n`` (from 1 on) makes allocation ``n`` (``sizes[n - 1]``), ``-n`` ends it. Memory held by the process's end is
    never ended."""
    marks: tuple[Mark, ...]
    """By position, ascending."""
    passes: tuple["PassPeaks", ...]
    """What the allocator itself counted, by pass: to check a replay against."""


@dataclass(frozen=True, slots=True)
class PassPeaks:
    """Peaks of one pass at one batch size."""

    batch_size: int
    steps: int
    """Optimizer steps the pass took."""
    allocated_bytes: int
    reserved_bytes: int
