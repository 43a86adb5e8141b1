"""The memory of one training step from its first allocation to its last, by what it is for; and its peak at other sizes."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from autotune.memory.explain import by_event, rounded, uses_of
from autotune.memory.forecast import Forecast
from autotune.memory.long_run import LongRun
from autotune.model import Phase, Trace, Use

USES = (
    Use.WEIGHTS,
    Use.GRADIENTS,
    Use.OPTIMIZER,
    Use.BATCH,
    Use.ACTIVATIONS,
    Use.WORKSPACE,
    Use.OTHER,
)
"""In the order that they are stacked: what stays at the bottom. Slack of blocks is left out: it is the allocator's."""


@dataclass(frozen=True, slots=True)
class PhaseSpan:
    """One phase of a step."""

    phase: Phase
    first_event: int
    """Within the step, from 0 on."""
    last_event: int


@dataclass(frozen=True, slots=True)
class Moment:
    """What is allocated after one event."""

    event: int
    """Within the step, from 0 on."""
    by_use: tuple[int, ...]
    """Bytes, in the order of ``StepTimeline.uses``; requests rounded up to whole blocks."""


@dataclass(frozen=True, slots=True)
class StepTimeline:
    """The step in which most is allocated."""

    batch_size: int
    step: int
    """1-based training step."""
    num_events: int
    """Allocations and frees in the step: the axis of the moments. It is no time: one event may follow another after a
    microsecond or a second."""
    uses: tuple[Use, ...]
    """Those that there are any of."""
    spans: tuple[PhaseSpan, ...]
    moments: tuple[Moment, ...]
    """Ascending. Of neighbours that were too many the highest is kept, so that the peak is always among them."""


def foretold_timeline(foretold: Forecast, batch_size: int, *, points: int = 400) -> StepTimeline | None:
    """The step as foretold for a size; None where no step was recorded."""
    return _timeline(foretold.run, foretold.sizes_at(batch_size), batch_size, points)


def recorded_timeline(trace: Trace, *, points: int = 400) -> StepTimeline | None:
    """A step as it was recorded, where nothing can be foretold from the recording; None where it holds no step."""
    run = LongRun(trace.events, trace.marks, tuple(range(len(trace.sizes))), 0)
    return _timeline(run, trace.sizes, None, points)


def uses_at_peak(foretold: Forecast, batch_size: int) -> Mapping[Use, int]:
    """Bytes of each use when most is allocated. No allocator is replayed: slack, cache and fragments are not in it."""
    run, sizes = foretold.run, [rounded(size) for size in foretold.sizes_at(batch_size)]
    sums = _sums(run, sizes)
    uses, _ = uses_of(run, by_event(run))
    at_peak: Counter[Use] = Counter()
    for event in run.events[: sums.index(max(sums)) + 1] if sums else ():
        at_peak[uses[abs(event) - 1]] += _change(event, sizes)
    return {use: at_peak[use] for use in USES if at_peak[use]}


def _timeline(run: LongRun, requested: Sequence[int], batch_size: int | None, points: int) -> StepTimeline | None:
    marked, sizes = by_event(run), [rounded(size) for size in requested]
    sums = _sums(run, sizes)
    trained = [at for at, mark in enumerate(marked) if mark.step > 0 and mark.phase is not Phase.EXIT]
    if not trained:
        return None
    top = marked[max(trained, key=sums.__getitem__)]
    inside = [at for at in trained if (marked[at].step, marked[at].batch_size) == (top.step, top.batch_size)]
    first, last = inside[0], inside[-1]
    uses, _ = uses_of(run, marked)
    held: Counter[Use] = Counter()
    for event in run.events[:first]:
        held[uses[abs(event) - 1]] += _change(event, sizes)
    shown = set(_highest(sums, first, last, points))
    rows: list[tuple[int, Counter[Use]]] = []
    for at in range(first, last + 1):
        event = run.events[at]
        held[uses[abs(event) - 1]] += _change(event, sizes)
        if at in shown:
            rows.append((at - first, held.copy()))
    there = tuple(use for use in USES if any(row[use] for _, row in rows))
    return StepTimeline(
        batch_size=top.batch_size if batch_size is None else batch_size,
        step=top.step,
        num_events=last - first + 1,
        uses=there,
        spans=_spans([marked[at].phase for at in range(first, last + 1)]),
        moments=tuple(Moment(event, tuple(row[use] for use in there)) for event, row in rows),
    )


def _change(event: int, sizes: Sequence[int]) -> int:
    return sizes[event - 1] if event > 0 else -sizes[-event - 1]


def _sums(run: LongRun, sizes: Sequence[int]) -> list[int]:
    """Bytes allocated after each event."""
    return list(accumulate(_change(event, sizes) for event in run.events))


def _highest(sums: Sequence[int], first: int, last: int, points: int) -> Iterator[int]:
    """The ends, and between them the highest moment of each of so many equal stretches."""
    yield first
    count = last - first + 1
    stretch = max(1, -(-count // points))
    for start in range(first, last + 1, stretch):
        yield max(range(start, min(start + stretch, last + 1)), key=sums.__getitem__)
    yield last


def _spans(phases: Sequence[Phase]) -> tuple[PhaseSpan, ...]:
    spans: list[PhaseSpan] = []
    for event, phase in enumerate(phases):
        if spans and spans[-1].phase is phase:
            spans[-1] = replace(spans[-1], last_event=event)
        else:
            spans.append(PhaseSpan(phase, event, event))
    return tuple(spans)
