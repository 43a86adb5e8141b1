"""How many probes the batch finder needs where memory follows a known curve, and that its answer is the curve's limit.

The counts are what it needs today: they may fall, and a change that raises one has to say why.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.model import Answer, Budget, Form, Phase, PhaseMemory, ProbeResult, Question
from autotune.search.batch import BatchFinder
from autotune.units import GIB, MIB
from tests.fakes import BUDGET, OUT_OF_MEMORY, SEGFAULT, FakeProber, Fault, drive, result

type Curve = Callable[[int], Mapping[Phase, int]]
"""Peak bytes of each phase, in the order they run, by batch size."""


def in_forward(peak_bytes: Callable[[int], int]) -> Curve:
    return lambda size: {Phase.FORWARD: peak_bytes(size)}


def of_phases(*lines: tuple[int, int]) -> Curve:
    """One phase for each pair: MiB at batch 0 and MiB a sample."""
    phases = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)
    return lambda size: {phase: (fixed + slope * size) * MIB for phase, (fixed, slope) in zip(phases, lines)}  # noqa: B905


AFFINE = of_phases((300, 7))
CONVEX = of_phases((200, 5), (100, 9))
FLAT_OPTIMIZER = of_phases((200, 5), (100, 9), (600, 0))
"""Small sizes need no more than the step of the optimizer, which does not depend on the batch."""
QUADRATIC = in_forward(lambda size: (100 + size) * MIB + size * size * MIB // 16)
THRESHOLD = in_forward(lambda size: (500 + 11 * max(0, size - 16)) * MIB)
"""Flat up to 16: a workspace that every size up to there shares."""


@dataclass(kw_only=True)
class Planted(FakeProber):
    """Needs what the curve says; memory runs out in the first phase that does not fit."""

    curve: Curve
    noise_bytes: int = 0
    """Up to so much is added to each peak of each probe."""
    seed: int = 0

    def probe(self, question: Question, budget: Budget, reserve_bytes: int) -> ProbeResult:
        """Answer at once; the reserve is not modelled."""
        size, form, attempt = question.batch_size, question.form, self.asked.count(question)
        random = Random(f"{self.seed} {len(self.asked)}")
        self.asked.append(question)
        peaks = {phase: peak + random.randint(0, self.noise_bytes) for phase, peak in self.curve(size).items()}
        fault = self.fault(size, form, attempt)
        too_large = [phase for phase, peak in peaks.items() if peak > budget.limit_bytes]
        if fault is None and too_large:
            fault = replace(OUT_OF_MEMORY, phase=too_large[0])
        answer = result(
            size,
            form,
            fault,
            reason=question.reason,
            need_bytes=max(peaks.values()),
            budget_bytes=budget.limit_bytes,
            step_seconds=self.step_seconds(size) if self.step_seconds else None,
        )
        phases = tuple(PhaseMemory(phase=phase, peak_allocated_bytes=peak) for phase, peak in peaks.items())
        return replace(answer, measurement=replace(answer.measurement, phases=phases)) if fault is None else answer


def found(finder: BatchFinder, prober: Planted, limit_bytes: int) -> tuple[Answer, list[ProbeResult]]:
    """Search to the end, and check what has to hold for every answer."""
    stop, history = drive(finder, prober, replace(BUDGET, limit_bytes=limit_bytes))
    answer = stop.answer
    assert answer is not None, stop.reason
    certified = {probe.batch_size for probe in history if probe.form is Form.LONG and probe.fits}
    assert {answer.max_batch, answer.recommended_batch} <= certified
    assert max(prober.curve(answer.max_batch).values()) <= limit_bytes
    assert answer.refuted_at in {probe.batch_size for probe in history if not probe.fits}
    return answer, history


@pytest.mark.parametrize(
    ("curve", "gib", "unit", "limit", "probes"),
    [
        (AFFINE, 1, 1, 103, 7),
        (AFFINE, 1, 8, 96, 6),
        (AFFINE, 16, 1, 2297, 9),
        (CONVEX, 1, 1, 102, 8),
        (CONVEX, 1, 8, 96, 6),
        (CONVEX, 16, 1, 1809, 9),
        (FLAT_OPTIMIZER, 1, 1, 102, 8),
        (FLAT_OPTIMIZER, 16, 1, 1809, 9),
        (QUADRATIC, 1, 1, 113, 8),
        (QUADRATIC, 4, 8, 240, 7),
        (QUADRATIC, 16, 1, 502, 9),
        (THRESHOLD, 1, 1, 63, 8),
        (THRESHOLD, 4, 8, 336, 7),
        (THRESHOLD, 16, 1, 1460, 9),
    ],
)
def test_the_limit_of_a_curve_is_found_exactly_in_few_probes(
    curve: Curve, gib: int, unit: int, limit: int, probes: int
) -> None:
    answer, history = found(BatchFinder(multiple_of=unit, recommend=False), Planted(curve=curve), gib * GIB)
    assert (answer.max_batch, answer.refuted_at, answer.holes) == (limit, limit + unit, ())
    assert len(history) <= probes
    assert sum(probe.form is Form.LONG for probe in history) == 1
