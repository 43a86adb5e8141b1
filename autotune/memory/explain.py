"""What the memory of a foretold batch size is used for at its peak, and which phase makes the peak at other sizes."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from autotune.memory.allocator_config import BLOCK_BYTES
from autotune.memory.forecast import Forecast
from autotune.memory.long_run import LongRun
from autotune.model import AllocationGroup, Foretold, Mark, Phase, PhaseMemory, PhaseRange, Use, UsedMemory

_GROUPS = 10
"""So many of the largest are told."""
_KEPT_BEYOND = {Phase.DATA: Use.BATCH, Phase.FORWARD: Use.ACTIVATIONS, Phase.BACKWARD: Use.GRADIENTS}
"""What outlives the phase that made it."""


def explain(foretold: Forecast, batch_size: int, *, limit: int, step: int = 1) -> Foretold:
    """Take the peak of one size apart.

    Args:
        foretold: the forecast.
        batch_size: any size; one that runs out of memory is explained as if there were no cap.
        limit: the phases with the highest peak are told for the sizes up to this one.
        step: spacing of legal sizes.
    """
    run = foretold.run
    seen = foretold.replay(batch_size, foretold.cap_bytes)
    if seen.out_of_memory is not None:
        seen = foretold.replay(batch_size, None)
    marked = by_event(run)
    at_peak = marked[seen.peak_event] if seen.peak_event >= 0 else _START
    now, then = (foretold.program.sizes_at(size) for size in (batch_size, batch_size + 1))
    uses, phases = uses_of(run, marked)
    parts: Counter[Use] = Counter()
    growth: Counter[Use] = Counter()
    groups: Counter[tuple[Use, Phase | None, int, int]] = Counter()
    for index in _alive(run.events[: seen.peak_event + 1]):
        source = run.sources[index]
        use, size, more = uses[index], now[source], then[source] - now[source]
        parts[use] += rounded(size)
        growth[use] += more
        groups[use, phases[index], size, more] += 1
    parts[Use.SLACK] = seen.allocated_bytes - parts.total()
    peaks = _Peaks(foretold)
    return Foretold(
        recorded_up_to=foretold.program.skeleton_batch,
        phase=at_peak.phase,
        step=at_peak.step,
        allocated_bytes=seen.allocated_bytes,
        reserved_bytes=seen.reserved_bytes,
        bytes_per_sample=growth.total(),
        cap_bytes=foretold.cap_bytes,
        fits=foretold.expect(batch_size).safe,
        parts=tuple(
            UsedMemory(use=use, size_bytes=size, bytes_per_sample=growth[use])
            for use, size in parts.most_common()
            if size
        ),
        groups=_largest(groups),
        phases=tuple(
            PhaseMemory(phase=phase, peak_allocated_bytes=peak)
            for phase, (peak, _) in peaks.at(batch_size).peaks.items()
        ),
        ranges=tuple(_ranges(peaks, step, max(limit // step, 1) * step)),
    )


_START = Mark(position=0, phase=Phase.LOAD, step=0, batch_size=0)


def by_event(run: LongRun) -> list[Mark]:
    """The mark that each event is under."""
    marked: list[Mark] = []
    for mark, start, stop in _segments(run):
        assert start == len(marked)
        marked += [mark] * (stop - start)
    return marked


def _segments(run: LongRun) -> Iterator[tuple[Mark, int, int]]:
    """Each mark with its first event and the one behind its last."""
    marks = [_START, *run.marks]
    stops = [*(mark.position for mark in run.marks), len(run.events)]
    for mark, stop in zip(marks, stops, strict=True):
        yield mark, mark.position, stop


def uses_of(run: LongRun, marked: Sequence[Mark]) -> tuple[list[Use], list[Phase | None]]:
    """By allocation: what it is for, and as in ``AllocationGroup`` the phase that makes it."""
    born: list[Mark] = []
    died: list[Mark | None] = [None] * len(run.sources)
    for event, mark in zip(run.events, marked, strict=True):
        if event > 0:
            born.append(mark)
        else:
            died[-event - 1] = mark
    last_step = max((mark.step for mark in run.marks), default=0)
    uses = [_use(start, end, last_step) for start, end in zip(born, died, strict=True)]
    for_good = [use is Use.WORKSPACE and end is None for use, end in zip(uses, died, strict=True)]
    return uses, [None if kept else start.phase for start, kept in zip(born, for_good, strict=True)]


def _use(born: Mark, died: Mark | None, last_step: int) -> Use:
    if died == born:
        return Use.WORKSPACE
    if born.step < 1:
        return Use.WEIGHTS
    if born.phase is Phase.OPTIMIZER:
        return Use.OPTIMIZER
    if died is None and born.step < last_step:  # What the last step keeps would have been let go by a further one.
        return Use.WORKSPACE
    return _KEPT_BEYOND.get(born.phase, Use.OTHER)


def _alive(events: Sequence[int]) -> list[int]:
    """Indices of the allocations that are alive after these events, in the order they were made."""
    ended = {-event for event in events if event < 0}
    return [event - 1 for event in events if event > 0 and event not in ended]


def _largest(groups: Counter[tuple[Use, Phase | None, int, int]]) -> tuple[AllocationGroup, ...]:
    ordered = sorted(groups.items(), key=lambda item: -item[0][2] * item[1])
    return tuple(
        AllocationGroup(use=use, phase=phase, count=count, each_bytes=size, each_bytes_per_sample=growth)
        for (use, phase, size, growth), count in ordered[:_GROUPS]
    )


def rounded(size: int) -> int:
    """Bytes of the block that a request gets, large segments left aside."""
    return (size + BLOCK_BYTES - 1) // BLOCK_BYTES * BLOCK_BYTES


@dataclass(frozen=True, slots=True)
class _PeaksAt:
    """At one batch size."""

    sums: list[int]
    """Bytes allocated after each event."""
    peaks: dict[Phase, tuple[int, int]]
    """Highest sum of each phase and the event it is reached at. Phases in the order they come."""

    @property
    def phase(self) -> Phase:
        """With the highest peak; of equals the first."""
        return max(self.peaks, key=lambda phase: self.peaks[phase][0], default=Phase.LOAD)

    def stays_first(self, there: "_PeaksAt") -> bool:
        """Whether the moment of this peak tops all other phases at another size too. Then it does in between: its sum
        is a line in the batch size, and the peaks of the others are convex, but for a saturating workspace."""
        first = self.phase
        if first is not there.phase or first not in self.peaks:
            return first is there.phase
        _, moment = self.peaks[first]
        return all(there.sums[moment] >= peak for phase, (peak, _) in there.peaks.items() if phase is not first)


class _Peaks:
    """Peaks of all phases at any size, without an allocator: rounded requests are summed."""

    def __init__(self, foretold: Forecast) -> None:
        self._foretold = foretold
        self._known: dict[int, _PeaksAt] = {}

    def at(self, batch_size: int) -> _PeaksAt:
        if batch_size not in self._known:
            run = self._foretold.run
            by_source = [rounded(size) for size in self._foretold.program.sizes_at(batch_size)]
            sizes = [by_source[source] for source in run.sources]
            sums = list(accumulate(sizes[event - 1] if event > 0 else -sizes[-event - 1] for event in run.events))
            peaks: dict[Phase, tuple[int, int]] = {}
            for mark, start, stop in _segments(run):
                highest = max(sums[start:stop], default=0)
                if highest > peaks.get(mark.phase, (0, 0))[0]:
                    peaks[mark.phase] = highest, sums.index(highest, start, stop)
            self._known[batch_size] = _PeaksAt(sums, peaks)
        return self._known[batch_size]


def _ranges(peaks: _Peaks, step: int, last: int) -> Iterator[PhaseRange]:
    """Multiples of ``step`` up to ``last``, by phase with the highest peak."""
    pending = [(step, last)]
    phase, first = peaks.at(step).phase, step
    while pending:
        low, high = pending.pop()
        here, there = peaks.at(low), peaks.at(high)
        if high - low > step and not (here.stays_first(there) or there.stays_first(here)):
            middle = (low // step + high // step) // 2 * step
            pending += [(middle, high), (low, middle)]
        elif there.phase is not phase:  # so the two are neighbours
            yield PhaseRange(phase=phase, first_batch=first, last_batch=low)
            phase, first = there.phase, high
    yield PhaseRange(phase=phase, first_batch=first, last_batch=last)
