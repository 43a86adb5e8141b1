"""A program's three recorded steps made as long as the probe that certifies: training goes on as its last step did."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from autotune.model import Mark, Phase


@dataclass(frozen=True, slots=True)
class LongRun:
    """As in ``Trace``, but with the allocations given by where they come from."""

    events: tuple[int, ...]
    marks: tuple[Mark, ...]
    sources: tuple[int, ...]
    """By allocation: index of the program's allocation that it repeats."""
    steps: int
    """How many training steps there are: as asked for, or those recorded where the last one does not repeat."""


def make_long(events: Sequence[int], marks: Sequence[Mark], steps: int, evaluate_after: int) -> LongRun:
    """Repeat the last step until there are ``steps`` of them; an evaluation recorded at the end moves to the middle.

    What a step frees of the step before, its repetition frees of the repetition before. That asks for two last steps
    with the same number of allocations; where they differ, nothing is repeated.

    Args:
        events, marks: as in ``Program``.
        steps: training steps wanted.
        evaluate_after: the step that the recorded evaluation, if there is one, follows.
    """
    bounds = list(_steps(marks, len(events)))
    last = bounds[-1][0].step if bounds else 0
    training = [(mark, start, stop) for mark, start, stop in bounds if mark.step == last]
    before = [(mark, start, stop) for mark, start, stop in bounds if mark.step == last - 1]
    tail_at = evaluation_at([mark for mark, _, _ in training])
    training, tail = training[:tail_at], training[tail_at:]
    run = _Run(events)
    as_recorded = LongRun(tuple(events), tuple(marks), tuple(e - 1 for e in events if e > 0), max(last, 0))
    if not training or not before:
        return as_recorded
    made_before = [e for _, start, stop in before for e in events[start:stop] if e > 0]
    made = [e for _, start, stop in training for e in events[start:stop] if e > 0]
    if len(made) != len(made_before):
        return as_recorded
    end = training[-1][2]
    run.take(events[:end])
    out_marks = [mark for mark in marks if mark.position < end or mark in [m for m, _, _ in training]]
    run.begin(made_before, made)
    for step in range(last, steps + 1):
        if step > last:
            out_marks += [replace(mark, position=at, step=step) for mark, at in run.repeat(training)]
        if step == max(evaluate_after, last):
            out_marks += [replace(mark, position=at, step=step) for mark, at in run.insert(tail)]
    return LongRun(tuple(run.events), tuple(out_marks), tuple(run.sources), steps)


def evaluation_at(marks: Sequence[Mark]) -> int:
    """Index of the mark the evaluation begins with; the number of marks where there is none. Older recordings have its
    batch made in a phase of its own before it."""
    phases = [mark.phase for mark in marks]
    if Phase.EVALUATE not in phases:
        return len(phases)
    at = phases.index(Phase.EVALUATE)
    return at - 1 if at and phases[at - 1] is Phase.DATA else at


def _steps(marks: Sequence[Mark], num_events: int) -> Iterator[tuple[Mark, int, int]]:
    """Each mark of training with its first event and the one behind its last."""
    ends = [*(mark.position for mark in marks[1:]), num_events]
    for mark, end in zip(marks, ends, strict=True):
        if mark.step > 0 and mark.phase is not Phase.EXIT:
            yield mark, mark.position, end


class _Run:
    """Events being written, with allocations numbered anew."""

    def __init__(self, recorded: Sequence[int]) -> None:
        self.events: list[int] = []
        self.sources: list[int] = []
        self._recorded = recorded
        self._alive: set[int] = set()
        self._number: dict[int, int] = {}
        """Recorded allocation -> the one written that now stands for it."""
        self._now: list[int] = []
        """The last step's allocations as written last, in order."""
        self._in_step: dict[int, int] = {}
        self._in_former: dict[int, int] = {}
        self._of_tail: set[int] = set()

    def _make(self, recorded: int) -> int:
        self.sources.append(recorded - 1)
        number = len(self.sources)
        self.events.append(number)
        self._alive.add(number)
        return number

    def _end(self, number: int) -> None:
        if number in self._alive:
            self._alive.discard(number)
            self.events.append(-number)
        else:
            # The evaluation has already taken its place (a batch); what it put there goes instead.
            for left in sorted(self._of_tail & self._alive):
                self._alive.discard(left)
                self.events.append(-left)

    def take(self, events: Sequence[int]) -> None:
        """Copy what was recorded."""
        for event in events:
            if event > 0:
                self._number[event] = self._make(event)
            else:
                self._alive.discard(self._number[-event])
                self.events.append(-self._number[-event])

    def begin(self, made_before: list[int], made: list[int]) -> None:
        """The last two steps' allocations, as recorded."""
        self._now = [self._number[one] for one in made]
        self._in_step = {one: place for place, one in enumerate(made)}
        self._in_former = {one: place for place, one in enumerate(made_before)}

    def repeat(self, segments: Sequence[tuple[Mark, int, int]]) -> Iterator[tuple[Mark, int]]:
        """Write the last step once more."""
        former, now = self._now, list[int]()
        for mark, start, stop in segments:
            yield mark, len(self.events)
            for event in self._recorded[start:stop]:
                if event > 0:
                    now.append(self._make(event))
                elif -event in self._in_step:
                    self._end(now[self._in_step[-event]])
                elif -event in self._in_former:
                    self._end(former[self._in_former[-event]])
        self._now = now

    def insert(self, segments: Sequence[tuple[Mark, int, int]]) -> Iterator[tuple[Mark, int]]:
        """Write the evaluation."""
        own: dict[int, int] = {}
        for mark, start, stop in segments:
            yield mark, len(self.events)
            for event in self._recorded[start:stop]:
                if event > 0:
                    own[event] = self._make(event)
                elif -event in own:
                    self._end(own[-event])
                elif -event in self._in_step:
                    self._end(self._now[self._in_step[-event]])
        self._of_tail = set(own.values())
