"""A trace cut into its passes, each allocation described so that it can be compared with one of another pass."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from autotune.model import Mark, Phase, Trace

HERE = 0
"""Fate of a request that ended in the segment it began in."""
OUTLIVES = -1
"""Fate of a request that was alive when its pass ended."""

Key = tuple[int, Phase, int]
"""Step, phase, and how many times that phase had come before in that step (gradient accumulation)."""


class Request(NamedTuple):
    """One allocation of a pass."""

    size: int
    """Requested bytes."""
    fate: int
    """``HERE``, ``OUTLIVES``, or a number for the place it ended at: so many steps on, in that phase."""
    span: int
    """``HERE``: how many allocations were made while it lived. Otherwise 0."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One phase of one step."""

    first: int
    """Index of its first allocation in ``Trace.sizes``; the others follow without a gap."""
    requests: tuple[Request, ...]


@dataclass(frozen=True, slots=True)
class Pass:
    """The training steps at one batch size."""

    batch_size: int
    start: int
    """Position of its first event."""
    stop: int
    """Position after its last event."""
    marks: tuple[Mark, ...]
    segments: dict[Key, Segment]
    """One for each mark, in their order."""


def cut(trace: Trace) -> list[Pass]:
    """The passes of a trace in the order they ran; what lies before, between and after them belongs to none.

    A pass is a run of training steps in which the batch size stays and the step does not descend. Marks without a step
    in the middle of such a run are part of it.
    """
    made, deaths = _lives(trace)
    bounds = [*made, len(trace.sizes)]
    stops = [*(mark.position for mark in trace.marks[1:]), len(trace.events)]
    places: dict[Key, int] = {}
    passes = []
    for run in _runs(trace.marks):
        keys = _keys(trace.marks, run)
        segments = {}
        for number, key in keys.items():
            requests = [
                _request(trace.sizes[index], index, number, deaths[index], keys, places)
                for index in range(bounds[number], bounds[number + 1])
            ]
            segments[key] = Segment(bounds[number], tuple(requests))
        marks = trace.marks[run.start : run.stop]
        passes.append(Pass(marks[0].batch_size, marks[0].position, stops[run[-1]], marks, segments))
    return passes


def _runs(marks: Sequence[Mark]) -> list[range]:
    """The indices of the marks of each pass."""
    runs: list[range] = []
    before: Mark | None = None
    for number, mark in enumerate(marks):
        if mark.step < 1 or mark.phase is Phase.EXIT:
            continue
        if before is None or mark.batch_size != before.batch_size or mark.step < before.step:
            runs.append(range(number, number + 1))
        else:
            runs[-1] = range(runs[-1].start, number + 1)
        before = mark
    return runs


def _keys(marks: Sequence[Mark], run: range) -> dict[int, Key]:
    """By index of the mark."""
    keys: dict[int, Key] = {}
    times: dict[tuple[int, Phase], int] = {}
    step = 0
    for number in run:
        step = marks[number].step or step
        named = (step, marks[number].phase)
        keys[number] = (*named, times.get(named, 0))
        times[named] = times.get(named, 0) + 1
    return keys


def _lives(trace: Trace) -> tuple[list[int], list[tuple[int, int]]]:
    """How many allocations had been made before each mark; and, for each allocation, under which mark it ended (-1 =
    never, or before the first) and how many had been made by then."""
    made: list[int] = []
    deaths = [(-1, 0)] * len(trace.sizes)
    count = 0
    starts = [mark.position for mark in trace.marks]
    for number, (start, stop) in enumerate(zip([0, *starts], [*starts, len(trace.events)], strict=True), -1):
        if number >= 0:
            made.append(count)
        for event in trace.events[start:stop]:
            if event > 0:
                count += 1
            else:
                deaths[-event - 1] = (number, count)
    return made, deaths


def _request(
    size: int, index: int, born: int, death: tuple[int, int], keys: Mapping[int, Key], places: dict[Key, int]
) -> Request:
    died, made = death
    if died == born:
        return Request(size, HERE, made - index - 1)
    if died not in keys:
        return Request(size, OUTLIVES, 0)
    step, phase, times = keys[died]
    place = (step - keys[born][0], phase, times)
    return Request(size, places.setdefault(place, len(places) + 1), 0)
