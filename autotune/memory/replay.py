"""What a recorded history of allocations would need under other allocator options, another cap, or other sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from autotune.memory.allocator import Block, CachingAllocator, OutOfCap
from autotune.memory.allocator_config import AllocatorConfig
from autotune.model import Mark, Phase


@dataclass(frozen=True, slots=True)
class StepPeaks:
    """What ``torch.cuda.memory_stats`` would say at the end of a step that began with a reset of the peaks."""

    step: int
    """As in ``Mark``: 0 is the building of the model."""
    batch_size: int
    """As in ``Mark``. Passes at several sizes each count their steps from 1 on."""
    allocated_bytes: int
    reserved_bytes: int
    retries: int
    """Within the step."""


@dataclass(frozen=True, slots=True)
class OomPoint:
    """Where a replay ran out of memory."""

    event: int
    """Index of the event that could not be served."""
    phase: Phase
    step: int
    batch_size: int
    requested_bytes: int
    allocated_bytes: int
    """In use when the request came."""
    reserved_bytes: int
    """With everything given back that could be."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """One replay, as far as it came."""

    steps: tuple[StepPeaks, ...]
    """In order, at least one; the last one ends where memory ran out, if it did."""
    out_of_memory: OomPoint | None
    peak_event: int
    """Index of the event after which most was allocated; -1 = nothing ever was."""

    @property
    def allocated_bytes(self) -> int:
        """Highest of all steps."""
        return max(step.allocated_bytes for step in self.steps)

    @property
    def reserved_bytes(self) -> int:
        """Highest of all steps."""
        return max(step.reserved_bytes for step in self.steps)

    @property
    def retries(self) -> int:
        """Of all steps."""
        return sum(step.retries for step in self.steps)


def replay(
    sizes: Sequence[int],
    events: Sequence[int],
    marks: Sequence[Mark],
    config: AllocatorConfig,
    cap_bytes: int | None = None,
    streams: Sequence[int] = (),
    drop_at: AbstractSet[int] = frozenset(),
) -> Replayed:
    """Run a history through the allocator.

    Args:
        sizes, events, marks, streams: as in ``Trace``, but ``sizes`` may be those of another batch size.
        config: the allocator's options.
        cap_bytes: what may be reserved; None = as much as is asked for.
        drop_at: steps that begin with one of these events begin with nothing cached (``torch.cuda.empty_cache``).
    """
    allocator = CachingAllocator(config, cap_bytes, streams=max(streams, default=0) + 1)
    malloc, free = allocator.malloc, allocator.free
    stream_of = streams or (0,) * len(sizes)
    blocks: dict[int, Block] = {}
    steps: list[StepPeaks] = []
    out_of_memory = None
    highest, peak_event = 0, -1
    for first, last, mark in _steps(marks, len(events)):
        if first in drop_at:
            allocator.release_cached()
        peak = allocator.allocated_bytes
        allocator.peak_reserved_bytes = allocator.reserved_bytes
        retries = allocator.retries
        event = first
        try:
            for event in range(first, last):
                number = events[event]
                if number > 0:
                    blocks[number] = malloc(sizes[number - 1], stream_of[number - 1])
                    if allocator.allocated_bytes > peak:
                        peak = allocator.allocated_bytes
                        if peak > highest:
                            highest, peak_event = peak, event
                else:
                    free(blocks.pop(-number))
        except OutOfCap as refused:
            out_of_memory = OomPoint(
                event=event,
                phase=_phase(marks, event),
                step=mark.step,
                batch_size=mark.batch_size,
                requested_bytes=sizes[events[event] - 1],
                allocated_bytes=refused.allocated_bytes,
                reserved_bytes=refused.reserved_bytes,
            )
        steps.append(
            StepPeaks(mark.step, mark.batch_size, peak, allocator.peak_reserved_bytes, allocator.retries - retries)
        )
        if out_of_memory:
            break
    return Replayed(tuple(steps), out_of_memory, peak_event)


def _steps(marks: Sequence[Mark], num_events: int) -> Iterator[tuple[int, int, Mark]]:
    """First event, event behind the last, and a mark of each step."""
    current = Mark(position=0, phase=Phase.LOAD, step=0, batch_size=0)
    for mark in marks:
        if (mark.step, mark.batch_size) != (current.step, current.batch_size):
            if mark.position:
                yield current.position, mark.position, current
            current = mark
    yield current.position, num_events, current


def _phase(marks: Sequence[Mark], event: int) -> Phase:
    phase = Phase.LOAD
    for mark in marks:
        if mark.position > event:
            break
        phase = mark.phase
    return phase
