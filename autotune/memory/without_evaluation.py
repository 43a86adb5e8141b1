"""A recording as it would be had the workload no evaluation: for a training whose evaluation has a batch of its own."""

from dataclasses import replace
from functools import lru_cache

from autotune.memory.long_run import evaluation_at
from autotune.model import Mark, Phase, Trace


@lru_cache(maxsize=8)
def without_evaluation(trace: Trace) -> Trace:
    """Leave out what the evaluation at the end of each pass made, and when it did.

    What it took the place of (the last training batch) ends right behind it, where the pass is over. Cached, so that a
    trace always gives the same one: what is learned from a trace is kept by identity. ``passes`` stay as they are.
    """
    stops = [*(mark.position for mark in trace.marks[1:]), len(trace.events)]
    inside = _inside(trace.marks)
    made = {
        event
        for mark, stop, within in zip(trace.marks, stops, inside, strict=True)
        if within
        for event in trace.events[mark.position : stop]
        if event > 0
    }
    if not any(inside):
        return trace
    kept = [event for event in range(1, len(trace.sizes) + 1) if event not in made]
    numbers = {event: number for number, event in enumerate(kept, 1)}
    events: list[int] = []
    marks: list[Mark] = []
    ended: list[int] = []
    first = trace.marks[0].position if trace.marks else len(trace.events)
    events += [_renumbered(event, numbers) for event in trace.events[:first]]
    for mark, stop, within in zip(trace.marks, stops, inside, strict=True):
        segment = [event for event in trace.events[mark.position : stop] if abs(event) in numbers]
        if within:
            ended += segment
            continue
        marks.append(replace(mark, position=len(events)))
        events += [_renumbered(event, numbers) for event in (*ended, *segment)]
        ended = []
    events += [_renumbered(event, numbers) for event in ended]
    return Trace(
        sizes=tuple(trace.sizes[event - 1] for event in kept),
        streams=tuple(trace.streams[event - 1] for event in kept) if trace.streams else (),
        events=tuple(events),
        marks=tuple(marks),
        passes=trace.passes,
    )


def _inside(marks: tuple[Mark, ...]) -> list[bool]:
    """By mark: whether it belongs to an evaluation, the making of its batch included."""
    inside = [mark.phase is Phase.EVALUATE for mark in marks]
    for number, mark in enumerate(marks):
        if mark.phase is Phase.EVALUATE and number:
            inside[number - 1] |= evaluation_at((marks[number - 1], mark)) == 0
    return inside


def _renumbered(event: int, numbers: dict[int, int]) -> int:
    return numbers[event] if event > 0 else -numbers[-event]
