"""The batch finder on recordings of a real GPU: its first proposal against what was seen to fit and to fail there.

Recordings of single sizes, one after the other, stand for the recording probe. Near the limit the truth is what was
measured under the same cap of 40 GiB; between the sizes that were measured it is varied.
"""

from dataclasses import dataclass, field, replace
from functools import cache

import pytest

from autotune.model import Budget, Cause, Form, Outcome, ProbeResult, Question, Reason, Settings, Trace
from autotune.search.batch import BatchFinder
from autotune.units import GIB, MIB
from tests.fakes import BUDGET, OUT_OF_MEMORY, Fault, drive, result
from tests.unit.test_memory_program_recordings import joined

CAP_BYTES = 40 * GIB
OUTSIDE_BYTES = 768 * MIB
DEVICE = replace(BUDGET, limit_bytes=CAP_BYTES + OUTSIDE_BYTES)
THRASHES = Fault(outcome=Outcome.UNSAFE, cause=Cause.THRASHING)
EXPANDABLE = "expandable_segments:True"


@dataclass(frozen=True)
class Measured:
    """What was measured near the limit, in six steps."""

    workload: str
    recorded: tuple[int, ...]
    """Sizes with a recording, the first ones and one up to a good half of the limit."""
    allocated: tuple[tuple[int, int], tuple[int, int]]
    """Two sizes, and the peaks of allocated bytes they had."""
    clean: int
    """The largest size measured that is safe."""
    unsafe: int
    """The smallest size measured above it that is not."""
    out_of_memory: int
    """The smallest size from which on memory ran out instead of the allocator thrashing."""
    allocator: str = ""

    def __str__(self) -> str:
        return f"{self.workload}-{self.allocator or 'native'}"


MEASURED = [
    Measured("gpt2", (2, 3, 16), ((26, 39154182656), (27, 40590656000)), 27, 28, 28),
    Measured("gpt2", (2, 3), ((26, 39154182656), (27, 40590656000)), 27, 28, 28),
    Measured("resnet50", (8, 24, 128), ((475, 41479083520), (480, 41923053056)), 480, 485, 490),
    Measured("vit", (8, 24, 128), ((128, 10216909824), (585, 41547546112)), 585, 590, 590),
    # Batches of 195 and 196 retry in their third and fourth steps only, so the long form may call them safe.
    Measured("bert", (4, 8, 64), ((190, 41090439680), (193, 41686756352)), 193, 195, 197),
    Measured("bert", (4, 8, 64), ((190, 41090439680), (193, 41686756352)), 196, 197, 197),
    # Of 25 only peaks of its neighbours are known.
    Measured("gpt2", (2, 3, 16), ((26, 39130576384), (27, 40566040064)), 25, 26, 29, EXPANDABLE),
    Measured("resnet50", (8, 24, 128), ((480, 41899263488), (485, 42332784128)), 485, 490, 495, EXPANDABLE),
    Measured("vit", (8, 24, 128), ((585, 41515773440), (590, 41858441216)), 590, 595, 600, EXPANDABLE),
    Measured("bert", (4, 8, 64), ((196, 42246769664), (197, 42454395904)), 197, 201, 201, EXPANDABLE),
]


@cache
def recording(workload: str, batch_sizes: tuple[int, ...]) -> Trace:
    """Always the same object, so that what is learned from it is."""
    return joined(workload, batch_sizes)


@dataclass(kw_only=True)
class RecordedDevice:
    """A prober that answers with what was measured."""

    measured: Measured
    limit: int
    """The largest safe size, from ``clean`` on and below ``unsafe``."""
    asked: list[Question] = field(default_factory=list)

    def probe(self, question: Question, budget: Budget, reserve_bytes: int) -> ProbeResult:
        self.asked.append(question)
        size, trace = question.batch_size, None
        if question.trace_unit is not None:
            size, trace = self.measured.recorded[-1], recording(self.measured.workload, self.measured.recorded)
        fault = None
        if size > self.limit:
            fault = OUT_OF_MEMORY if size >= self.measured.out_of_memory else THRASHES
        answer = result(size, question.form, fault, reason=question.reason, budget_bytes=budget.limit_bytes)
        measurement = replace(
            answer.measurement, peak_allocated_bytes=self._allocated(size), non_pytorch_bytes=OUTSIDE_BYTES
        )
        return replace(answer, measurement=measurement, trace=trace, settings=question.settings)

    def _allocated(self, size: int) -> int:
        """On the line through the two sizes measured."""
        (low, below), (high, above) = self.measured.allocated
        return below + (above - below) * (size - low) // (high - low)


@cache
def searched(measured: Measured, limit: int) -> tuple[ProbeResult, ...]:
    finder = BatchFinder(trace=True, recommend=False, settings=Settings(allocator=measured.allocator))
    stop, history = drive(finder, RecordedDevice(measured=measured, limit=limit), DEVICE, at_most=20)
    assert stop.answer is not None
    assert (stop.answer.max_batch, stop.answer.refuted_at) == (limit, limit + 1)
    return tuple(history)


@pytest.mark.parametrize("measured", MEASURED, ids=str)
def test_the_first_proposal_is_within_two_percent_of_the_limit_measured(measured: Measured) -> None:
    first = searched(measured, measured.clean)[1]
    assert (first.form, first.reason) == (Form.LONG, Reason.PREDICTED)
    assert measured.clean * 0.98 <= first.batch_size <= (measured.unsafe - 1) * 1.02


@pytest.mark.parametrize("measured", MEASURED, ids=str)
def test_the_limit_measured_is_found_close_to_it_all_the_way(measured: Measured) -> None:
    """The counts are what the finder needs today."""
    history = searched(measured, measured.clean)
    assert len(history) <= 7
    far = [probe.batch_size for probe in history[1:] if abs(probe.batch_size - measured.clean) > 0.02 * measured.clean]
    assert len(far) <= 1


@pytest.mark.parametrize("measured", [one for one in MEASURED if one.workload == "resnet50"], ids=str)
def test_a_limit_between_the_sizes_measured_is_found_as_well(measured: Measured) -> None:
    assert len(searched(measured, measured.unsafe - 1)) <= 7


@pytest.mark.parametrize("measured", MEASURED[:2] + MEASURED[6:7], ids=str)
def test_gpt2_takes_three_probes_with_either_kind_of_segments(measured: Measured) -> None:
    asked = [(probe.batch_size, probe.form, probe.reason) for probe in searched(measured, measured.clean)]
    assert asked[1:] == [
        (measured.clean, Form.LONG, Reason.PREDICTED),
        (measured.unsafe, Form.LONG, Reason.REFUTE),
    ]
