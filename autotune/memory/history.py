"""What a process would have done that ran only one pass of a trace, and the most it would have held at once."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from autotune.memory.allocator_config import BLOCK_BYTES
from autotune.memory.passes import Pass
from autotune.model import Mark, Trace


def peak_bytes(events: Sequence[int], sizes: Sequence[int]) -> int:
    """The most that is allocated at once: requests rounded up to whole blocks, without the slack of unsplit ones."""
    rounded = [-(-size // BLOCK_BYTES) * BLOCK_BYTES for size in sizes]
    allocated = peak = 0
    for event in events:
        if event > 0:
            allocated += rounded[event - 1]
            peak = max(peak, allocated)
        else:
            allocated -= rounded[-event - 1]
    return peak


class History:
    """A trace, and what a process of its own would have done in one of its passes."""

    def __init__(self, trace: Trace, built: int) -> None:
        self.trace = trace
        self._built = built
        """Position after the building of the model."""
        self._num_built = sum(event > 0 for event in trace.events[:built])
        self._ends = [len(trace.events)] * len(trace.sizes)
        for position, event in enumerate(trace.events):
            if event < 0:
                self._ends[-event - 1] = position

    def alone(self, one: Pass, redone: AbstractSet[int]) -> tuple[list[int], list[Mark]]:
        """Events, numbered as in the trace, and marks of a process that builds the model and runs this pass only.

        What earlier passes left behind for good (library workspaces, caches) is made at the start of the first step,
        unless the pass makes it itself: ``redone`` has the indices of what is known to be made anew in each pass. What
        earlier passes left behind for a while is not there, and what they ended of the model is gone by then.
        """
        events = list(self.trace.events[: self._built])
        marks = [mark for mark in self.trace.marks if mark.position < self._built]
        start = len(events)
        first = next(iter(one.segments.values())).first
        for index, end in enumerate(self._ends[:first]):
            if index < self._num_built:
                if self._built <= end < one.start:
                    events.append(-index - 1)
            elif end >= one.stop and index not in redone:
                events.append(index + 1)
        stops = [*(mark.position for mark in one.marks[1:]), one.stop]
        for mark, stop in zip(one.marks, stops, strict=True):
            marks.append(replace(mark, position=start))
            for event in self.trace.events[mark.position : stop]:
                if event > 0 or -event <= self._num_built or -event > first:
                    events.append(event)
            start = len(events)
        return events, marks
