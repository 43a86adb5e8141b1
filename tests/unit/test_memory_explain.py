"""Peaks taken apart: of planted programs exactly, of GPT-2 as recorded on a real GPU."""

from dataclasses import dataclass, replace
from functools import cache

import pytest

from autotune.memory.explain import explain
from autotune.memory.forecast import Forecast, learn
from autotune.memory.program import Program
from autotune.model import Foretold, Mark, PassPeaks, Phase, Trace, Use, UsedMemory
from autotune.units import GIB, KIB, MIB
from tests.unit.planted_passes import Leftovers, Planted, trained
from tests.unit.test_memory_program_recordings import joined

EXPANDABLE = "expandable_segments:True"
"""Blocks are split to the byte, so that there is no slack."""


def forecast_of(trace: Trace, allocator: str = EXPANDABLE, cap_bytes: int = GIB) -> Forecast:
    learned = learn(trace)
    assert isinstance(learned, Program), learned
    return Forecast(learned, allocator, cap_bytes)


@dataclass(frozen=True)
class Loop:
    """Two weights, a library's workspace in each direction, and an evaluation whose scores outlive it."""

    scores_bytes: int = KIB
    """A sample."""
    algorithm_bytes: int = 0
    """For a moment in each forward pass, whatever the batch; 0 = not made."""
    scratch_bytes: int = 0
    """A sample, for a moment at the end of each forward pass; 0 = not made."""
    uneven: bool = False
    """The last step makes one allocation more, so that it cannot be repeated."""


class Book:
    """A history written by name."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._sizes: list[int] = []
        self._events: list[int] = []
        self._marks: list[Mark] = []
        self._numbers: dict[str, int] = {}
        self._passes: list[PassPeaks] = []

    def mark(self, phase: Phase, step: int, batch_size: int) -> None:
        self._marks.append(Mark(len(self._events), phase, step, batch_size))

    def make(self, name: str, size: int) -> None:
        self._sizes.append(size)
        self._numbers[name] = len(self._sizes)
        self._events.append(len(self._sizes))

    def end(self, *names: str) -> None:
        self._events += [-self._numbers.pop(name) for name in names if name in self._numbers]

    def for_a_moment(self, name: str, size: int) -> None:
        if size:
            self.make(name, size)
            self.end(name)

    def one_pass(self, batch_size: int) -> None:
        for step in (1, 2, 3):
            self.mark(Phase.DATA, step, batch_size)
            self.make(f"batch {step}", batch_size * 8 * KIB)
            self.end(f"batch {step - 1}", "gradient a", "gradient b")
            self.mark(Phase.FORWARD, step, batch_size)
            if "cuDNN" not in self._numbers:
                self.make("cuDNN", 3 * MIB)
            self.for_a_moment("algorithm", self._loop.algorithm_bytes)
            self.make("hidden", batch_size * 64 * KIB)
            self.make("activation", batch_size * 256 * KIB)
            self.end("hidden")
            self.for_a_moment("scratch", batch_size * self._loop.scratch_bytes)
            self.mark(Phase.BACKWARD, step, batch_size)
            if "cuBLAS" not in self._numbers:
                self.make("cuBLAS", 8 * MIB)
            self.make("passed on", batch_size * 256 * KIB)
            self.make("gradient a", MIB)
            self.make("gradient b", 2 * MIB)
            self.end("activation", "passed on")
            self.mark(Phase.OPTIMIZER, step, batch_size)
            if "state b" not in self._numbers:
                self.make("state a", 2 * MIB)
                self.make("state b", 4 * MIB)
            self.for_a_moment("update", 2 * MIB)
            self.for_a_moment("more", KIB * (self._loop.uneven and step == 3))
        self.mark(Phase.DATA, 3, batch_size)
        self.make("batch 4", batch_size * 8 * KIB)
        self.end("batch 3")
        self.mark(Phase.EVALUATE, 3, batch_size)
        self.make("scores", batch_size * self._loop.scores_bytes)
        self.mark(Phase.EXIT, 3, batch_size)
        self.end("batch 4", "scores", "gradient a", "gradient b", "state a", "state b")
        self._passes.append(PassPeaks(batch_size, 3, 0, 0))

    def trace(self) -> Trace:
        return Trace(tuple(self._sizes), (), tuple(self._events), tuple(self._marks), tuple(self._passes))


@cache
def written(loop: Loop = Loop()) -> Trace:
    book = Book(loop)
    book.mark(Phase.BUILD, 0, 0)
    book.make("weight a", MIB)
    book.make("initial", 2 * MIB)
    book.make("weight b", 2 * MIB)
    book.end("initial")
    for batch_size in (2, 3):
        book.one_pass(batch_size)
    return book.trace()


SANDWICHED = Loop(algorithm_bytes=20 * MIB, scratch_bytes=300 * KIB)


def parts_of(explained: Foretold) -> dict[Use, int]:
    return {part.use: part.size_bytes for part in explained.parts}


def test_every_use_is_told_by_when_it_is_made_and_let_go() -> None:
    explained = explain(forecast_of(written()), 20, limit=20)
    assert (explained.phase, explained.step) == (Phase.BACKWARD, 2)
    assert explained.parts == (
        UsedMemory(use=Use.WORKSPACE, size_bytes=(3 + 8 + 5) * MIB, bytes_per_sample=256 * KIB),
        UsedMemory(use=Use.OPTIMIZER, size_bytes=6 * MIB, bytes_per_sample=0),
        UsedMemory(use=Use.ACTIVATIONS, size_bytes=5 * MIB, bytes_per_sample=256 * KIB),
        UsedMemory(use=Use.WEIGHTS, size_bytes=3 * MIB, bytes_per_sample=0),
        UsedMemory(use=Use.GRADIENTS, size_bytes=3 * MIB, bytes_per_sample=0),
        UsedMemory(use=Use.BATCH, size_bytes=160 * KIB, bytes_per_sample=8 * KIB),
    )
    assert explained.allocated_bytes == sum(parts_of(explained).values())
    assert explained.bytes_per_sample == 520 * KIB


def test_what_an_evaluation_keeps_is_something_else() -> None:
    explained = explain(forecast_of(written(Loop(scores_bytes=16 * MIB))), 20, limit=20)
    assert (explained.phase, explained.step) == (Phase.DATA, 5)  # the next batch comes on top
    parts = parts_of(explained)
    assert parts[Use.OTHER] == 320 * MIB
    assert parts[Use.GRADIENTS] == 3 * MIB  # they live until the next step


def test_what_the_last_step_leaves_is_what_the_others_let_go_later() -> None:
    explained = explain(forecast_of(written(Loop(scores_bytes=16 * MIB, uneven=True))), 20, limit=20)
    assert (explained.phase, explained.step) == (Phase.EVALUATE, 3)
    parts = parts_of(explained)
    assert (parts[Use.OTHER], parts[Use.GRADIENTS], parts[Use.BATCH]) == (320 * MIB, 3 * MIB, 160 * KIB)
    assert parts[Use.WORKSPACE] == 11 * MIB


def test_the_peak_of_each_phase_is_told() -> None:
    explained = explain(forecast_of(written()), 20, limit=20)
    kept = (3 + 11 + 6) * MIB + 160 * KIB
    assert {one.phase: one.peak_allocated_bytes for one in explained.phases} == {
        Phase.BUILD: 5 * MIB,
        Phase.DATA: kept + 3 * MIB + 160 * KIB + 20 * KIB,  # after the evaluation
        Phase.FORWARD: kept + 20 * 320 * KIB,
        Phase.BACKWARD: kept + 10 * MIB + 3 * MIB,
        Phase.OPTIMIZER: kept + 3 * MIB + 2 * MIB,
        Phase.EVALUATE: kept + 3 * MIB + 20 * KIB,
    }


def test_the_crossover_from_the_optimizer_to_the_backward_pass_is_where_the_sums_cross() -> None:
    explained = explain(forecast_of(written()), 2, limit=50)
    assert [(one.phase, one.first_batch, one.last_batch) for one in explained.ranges] == [
        (Phase.OPTIMIZER, 1, 3),  # 2 MiB
        (Phase.BACKWARD, 4, 50),  # 512 KiB a sample; of equals the first
    ]


def test_a_phase_may_lead_at_small_and_large_sizes_and_not_between() -> None:
    explained = explain(forecast_of(written(SANDWICHED)), 2, limit=160)
    assert [(one.phase, one.first_batch, one.last_batch) for one in explained.ranges] == [
        (Phase.FORWARD, 1, 34),  # 20 MiB
        (Phase.BACKWARD, 35, 69),  # 3 MiB and 512 KiB a sample
        (Phase.FORWARD, 70, 160),  # 556 KiB a sample
    ]
    every_eighth = explain(forecast_of(written(SANDWICHED)), 2, limit=163, step=8)
    assert [(one.first_batch, one.last_batch) for one in every_eighth.ranges] == [(8, 32), (40, 64), (72, 160)]


@pytest.mark.parametrize("step", [1, 8])
@pytest.mark.parametrize(
    "trace",
    [
        written(),
        written(Loop(scores_bytes=520 * KIB)),
        written(SANDWICHED),
        trained(Planted(cache=100_000), (2, 3)),
        trained(Planted(workspace=lambda batch, layer: batch * 9000 * (layer == 1)), (2, 3)),
        trained(Planted(saved=lambda batch, layer: batch * batch * 64, leftovers=Leftovers.NEVER), (2, 3, 5)),
    ],
    ids=["written", "scores", "sandwiched", "planted", "late", "curved"],
)
def test_ranges_agree_with_the_peaks_at_every_size(trace: Trace, step: int) -> None:
    foretold = forecast_of(trace)
    limit = 160
    ranges = explain(foretold, 1, limit=limit, step=step).ranges
    found = {size: one.phase for one in ranges for size in range(one.first_batch, one.last_batch + 1, step)}
    assert list(found) == list(range(step, limit + 1, step))
    for size, phase in found.items():
        peaks = {one.phase: one.peak_allocated_bytes for one in explain(foretold, size, limit=1).phases}
        assert peaks[phase] == max(peaks.values()), size


def test_a_size_beyond_the_limit_is_explained_as_if_there_were_none() -> None:
    within = explain(forecast_of(written(), cap_bytes=64 * MIB), 20, limit=20)
    beyond = explain(forecast_of(written(), cap_bytes=32 * MIB), 20, limit=20)
    assert (within.fits, beyond.fits) == (True, False)
    assert beyond.cap_bytes == 32 * MIB < beyond.reserved_bytes
    assert (beyond.allocated_bytes, beyond.parts) == (within.allocated_bytes, within.parts)


def test_alike_allocations_are_grouped_and_the_ten_largest_come_first() -> None:
    explained = explain(forecast_of(written()), 20, limit=20)
    assert [(one.use, one.phase, one.count, one.each_bytes, one.each_bytes_per_sample) for one in explained.groups] == [
        (Use.WORKSPACE, None, 1, 8 * MIB, 0),
        (Use.ACTIVATIONS, Phase.FORWARD, 1, 5 * MIB, 256 * KIB),
        (Use.WORKSPACE, Phase.BACKWARD, 1, 5 * MIB, 256 * KIB),
        (Use.OPTIMIZER, Phase.OPTIMIZER, 1, 4 * MIB, 0),
        (Use.WORKSPACE, None, 1, 3 * MIB, 0),
        (Use.WEIGHTS, Phase.BUILD, 1, 2 * MIB, 0),
        (Use.OPTIMIZER, Phase.OPTIMIZER, 1, 2 * MIB, 0),
        (Use.GRADIENTS, Phase.BACKWARD, 1, 2 * MIB, 0),
        (Use.WEIGHTS, Phase.BUILD, 1, MIB, 0),
        (Use.GRADIENTS, Phase.BACKWARD, 1, MIB, 0),
    ]


# Recorded on a GPU

WEIGHTS_BYTES = 497_759_232
"""GPT-2's 124,439,808 parameters at 4 bytes, in blocks."""


def phased(trace: Trace) -> Trace:
    """GPT-2's recorded steps with the phases put in that the recording did not note.

    The batch comes first. The backward pass begins with the gradient of the loss, the last scalar before the first
    gradient that lives until the next step; the optimizer step begins with the first state that stays, as many
    allocations after the last gradient in every step.
    """
    ends = {-event: position for position, event in enumerate(trace.events) if event < 0}
    starts = [*(mark.position for mark in trace.marks), len(trace.events)]
    marks = [trace.marks[0]]
    backward, optimizer, distance = 0, 0, 0
    for mark, start, stop in zip(trace.marks[1:], starts[1:], starts[2:], strict=False):
        made = [event for event in trace.events[start:stop] if event > 0]
        if mark.step < 3:  # the third is like the second
            second = [position for position in range(stop, len(trace.events)) if trace.events[position] > 0][1]
            kept = [n for n in made[1:] if stop <= ends.get(n, second) < second]
            backward = made.index(max(n for n in made if n < kept[0] and trace.sizes[n - 1] == 4))
            last = made.index(kept[-1])
            if mark.step == 1:
                distance = next(i for i, n in enumerate(made[last:]) if n not in ends and trace.sizes[n - 1] > GIB // 8)
            optimizer = last + distance
        for phase, first in ((Phase.FORWARD, 1), (Phase.BACKWARD, backward), (Phase.OPTIMIZER, optimizer)):
            if phase is Phase.FORWARD:
                marks.append(replace(mark, phase=Phase.DATA))
            marks.append(replace(mark, phase=phase, position=trace.events.index(made[first], start)))
    return replace(trace, marks=tuple(marks))


@cache
def recorded(workload: str, *batch_sizes: int, allocator: str = "") -> Forecast:
    return forecast_of(phased(joined(workload, batch_sizes)), allocator, 40 * GIB)


@pytest.mark.parametrize("allocator", ["", EXPANDABLE])
@pytest.mark.parametrize("batch_size", [1, 4, 27, 28])
def test_gpt2s_weights_and_optimizer_state_are_those_of_its_parameters(batch_size: int, allocator: str) -> None:
    explained = explain(recorded("gpt2", 2, 3, 4, allocator=allocator), batch_size, limit=batch_size)
    parts = parts_of(explained)
    assert parts[Use.WEIGHTS] == WEIGHTS_BYTES
    assert parts[Use.OPTIMIZER] == 2 * WEIGHTS_BYTES
    assert sum(parts.values()) == explained.allocated_bytes
    assert (Use.SLACK in parts) is (allocator == "")


def test_gpt2s_peak_is_the_gradient_of_its_logits_at_every_size() -> None:
    explained = explain(recorded("gpt2", 2, 3, 4), 27, limit=27)
    assert explained.phase is Phase.BACKWARD
    assert [(one.phase, one.last_batch) for one in explained.ranges] == [(Phase.BACKWARD, 27)]
    logits_bytes = 1024 * 50_257 * 4
    first = explained.groups[0]  # three in each of twelve layers
    assert (first.use, first.phase, first.count, first.each_bytes) == (
        Use.ACTIVATIONS,
        Phase.FORWARD,
        36,
        27 * 1024 * 3072 * 4,
    )
    (logits,) = [group for group in explained.groups if group.phase is Phase.BACKWARD]
    assert (logits.use, logits.count) == (Use.WORKSPACE, 2)
    assert (logits.each_bytes, logits.each_bytes_per_sample) == (27 * logits_bytes, logits_bytes)
    assert explained.recorded_up_to == 4
    assert explained.fits


def test_with_checkpointing_gpt2s_smallest_peak_is_that_of_the_optimizer() -> None:
    explained = explain(recorded("gpt2ckpt", 2, 4, allocator=EXPANDABLE), 1, limit=48)
    assert (explained.phase, explained.step) == (Phase.OPTIMIZER, 1)
    assert parts_of(explained)[Use.GRADIENTS] == WEIGHTS_BYTES
    assert [(one.phase, one.first_batch, one.last_batch) for one in explained.ranges] == [
        (Phase.OPTIMIZER, 1, 1),
        (Phase.BACKWARD, 2, 48),
    ]
