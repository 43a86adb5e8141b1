"""Allocator histories of a made-up training program whose requests follow known rules."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from autotune.memory.passes import Pass, cut
from autotune.model import Mark, PassPeaks, Phase, Trace

STEPS = 3


class Leftovers(Enum):
    """When a pass's gradients, optimizer state and last batch are let go."""

    AT_ITS_END = auto()
    IN_THE_NEXT = auto()
    NEVER = auto()


def nothing(batch_size: int, layer: int) -> int:
    """No such request."""
    return 0


@dataclass(frozen=True)
class Planted:
    """Six layers; bytes by batch size and layer, 0 = the request is not made."""

    workspace: Callable[[int, int], int] = nothing
    """Made and ended at once in each layer's backward."""
    saved: Callable[[int, int], int] = nothing
    """Made in each layer's forward, kept for its backward."""
    counters: Callable[[int, int], int] = nothing
    """Made right after a workspace, ended with it."""
    cache: int = 0
    """Made in the first forward of the process, kept for good."""
    leftovers: Leftovers = Leftovers.AT_ITS_END
    shuffled: bool = False
    """Activations end in an order of their own in each pass, all at once."""
    temporary: bool = False
    """What building leaves behind is let go in the process's first step."""
    side_stream: bool = False
    """Batches are made on a stream of their own."""


class Writer:
    """Events of one process."""

    def __init__(self, planted: Planted) -> None:
        self._planted = planted
        self._sizes: list[int] = []
        self._streams: list[int] = []
        self._events: list[int] = []
        self._marks: list[Mark] = []
        self._peaks: list[PassPeaks] = []
        self._left: list[int] = []
        self._weights: list[int] = []
        self._temporary = 0
        self._warm = False

    def mark(self, phase: Phase, step: int, batch_size: int) -> None:
        self._marks.append(Mark(len(self._events), phase, step, batch_size))

    def make(self, size: int, stream: int = 0) -> int:
        self._sizes.append(size)
        self._streams.append(stream)
        self._events.append(len(self._sizes))
        return len(self._sizes)

    def end(self, *numbers: int) -> None:
        self._events.extend(-number for number in numbers)

    def build(self) -> None:
        self.mark(Phase.BUILD, 0, 0)
        self.end(self.make(5000))
        self._weights = [self.make(4096 * layer) for layer in range(1, 7)]
        self._temporary = self.make(99_000)

    def train(self, batch_size: int, *, steps: int = STEPS, complete: bool = True) -> None:
        batch, gradients, state = 0, list[int](), list[int]()
        for step in range(1, steps + 1):
            self.mark(Phase.DATA, step, batch_size)
            if self._left and self._planted.leftovers is Leftovers.IN_THE_NEXT:
                self.end(*self._left)
                self._left = []
            made = self.make(600 * batch_size, int(self._planted.side_stream))
            self.end(*[batch] * (batch > 0))
            batch = made
            self.mark(Phase.FORWARD, step, batch_size)
            self.end(*gradients)
            kept = self._forward(batch_size)
            self.mark(Phase.BACKWARD, step, batch_size)
            gradients = self._backward(batch_size, kept)
            self.mark(Phase.OPTIMIZER, step, batch_size)
            state = state or [self.make(self._sizes[weight - 1]) for weight in self._weights]
            self.end(self.make(30_000))
        self.mark(Phase.EXIT, steps, batch_size)
        self._left += [batch, *gradients, *state]
        if self._planted.leftovers is Leftovers.AT_ITS_END:
            self.end(*self._left)
            self._left = []
        if complete:
            self._peaks.append(PassPeaks(batch_size, steps, 0, 0))

    def _forward(self, batch_size: int) -> list[list[int]]:
        if not self._warm:
            if self._planted.cache:
                self.make(self._planted.cache)
            if self._planted.temporary:
                self.end(self._temporary)
            self._warm = True
        kept = []
        for layer in range(1, 7):
            self.end(self.make(500 * batch_size))
            kept.append([self.make(1000 * layer * batch_size + 640), self.make(777)])
            if size := self._planted.saved(batch_size, layer):
                kept[-1].append(self.make(size))
        return kept

    def _backward(self, batch_size: int, kept: list[list[int]]) -> list[int]:
        gradients = []
        for layer in range(6, 0, -1):
            if size := self._planted.workspace(batch_size, layer):
                made = [self.make(size)]
                if size := self._planted.counters(batch_size, layer):
                    made.append(self.make(size))
                self.end(*reversed(made))
            gradients.append(self.make(4096 * layer))
            passed_on = self.make(1000 * layer * batch_size)
            if not self._planted.shuffled:
                self.end(*kept[layer - 1])
            self.end(passed_on)
        if self._planted.shuffled:
            ended = [number for numbers in kept for number in numbers]
            random.Random(batch_size).shuffle(ended)
            self.end(*ended)
        return gradients

    def trace(self) -> Trace:
        streams = tuple(self._streams) if any(self._streams) else ()
        return Trace(tuple(self._sizes), streams, tuple(self._events), tuple(self._marks), tuple(self._peaks))


def trained(planted: Planted, batch_sizes: Sequence[int]) -> Trace:
    """One process that trains at several sizes, one after the other."""
    writer = Writer(planted)
    writer.build()
    for batch_size in batch_sizes:
        writer.train(batch_size)
    return writer.trace()


def passes_of(planted: Planted, batch_sizes: Sequence[int]) -> tuple[Trace, list[Pass]]:
    """The same, cut."""
    trace = trained(planted, batch_sizes)
    return trace, cut(trace)
