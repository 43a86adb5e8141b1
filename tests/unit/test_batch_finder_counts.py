"""How many probes the batch finder needs where memory follows a known curve, and that its answer is the curve's limit.

The counts are what it needs today: they may fall, and a change that raises one has to say why.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from math import log2
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.model import Answer, Budget, Form, Phase, PhaseMemory, ProbeResult, Question, Reason
from autotune.search.batch import BatchFinder
from autotune.units import GIB, MIB
from tests.fakes import BUDGET, OUT_OF_MEMORY, SEGFAULT, FakeProber, Fault, drive, result

FORMS = frozenset(Form)
Curve = Callable[[int], Mapping[Phase, int]]
"""Peak bytes of each phase, in the order they run, by batch size."""


def in_phases(*lines: tuple[int, int]) -> Curve:
    """A straight line for each phase: MiB at batch 0, MiB a sample."""
    phases = dict(zip((Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER), lines, strict=False))
    return lambda size: {phase: (fixed + slope * size) * MIB for phase, (fixed, slope) in phases.items()}


def in_forward(peak_bytes: Callable[[int], int]) -> Curve:
    return lambda size: {Phase.FORWARD: peak_bytes(size)}


AFFINE = in_phases((300, 7))
CONVEX = in_phases((200, 5), (100, 9))
FLAT_AT_FIRST = in_phases((200, 5), (100, 9), (600, 0))
"""Small sizes need no more than the optimizer's step, which does not depend on the batch."""
QUADRATIC = in_forward(lambda size: (100 + size) * MIB + size * size * MIB // 16)
THRESHOLD = in_forward(lambda size: (500 + 11 * max(0, size - 16)) * MIB)
"""Flat up to 16: what these sizes need is less than something that is there anyway."""


@dataclass(kw_only=True)
class CurveProber(FakeProber):
    """Needs what the curve says; memory runs out in the first phase that does not fit."""

    curve: Curve
    noise_bytes: int = 0
    """Up to so much comes on top of each peak, something else in each probe."""
    seed: int = 0

    def probe(self, question: Question, budget: Budget, reserve_bytes: int) -> ProbeResult:
        """Answer at once; the reserve is not modelled."""
        size, form, attempt = question.batch_size, question.form, self.asked.count(question)
        random = Random(f"{self.seed} {len(self.asked)}")
        self.asked.append(question)
        peaks = {phase: peak + random.randint(0, self.noise_bytes) for phase, peak in self.curve(size).items()}
        fault = self.fault(size, form, attempt)
        too_large = next((phase for phase, peak in peaks.items() if peak > budget.limit_bytes), None)
        if fault is None and too_large is not None:
            fault = replace(OUT_OF_MEMORY, phase=too_large)
        need_bytes = max(peaks.values())
        answer = result(
            size, form, fault, reason=question.reason, need_bytes=need_bytes, budget_bytes=budget.limit_bytes
        )
        if fault is not None:
            return answer
        phases = tuple(PhaseMemory(phase=phase, peak_allocated_bytes=peak) for phase, peak in peaks.items())
        return replace(answer, measurement=replace(answer.measurement, phases=phases))


def found(finder: BatchFinder, prober: CurveProber, limit_bytes: int) -> tuple[Answer, list[ProbeResult]]:
    """Search to the end, and check what has to hold for every answer."""
    stop, history = drive(finder, prober, replace(BUDGET, limit_bytes=limit_bytes), at_most=60)
    answer = stop.answer
    assert answer is not None, stop.reason
    certified = {probe.batch_size for probe in history if probe.form is Form.LONG and probe.fits}
    assert {answer.max_batch, answer.recommended_batch} <= certified
    assert max(prober.curve(answer.max_batch).values()) <= limit_bytes
    assert answer.refuted_at in {probe.batch_size for probe in history if not probe.fits}
    return answer, history


def asked(prober: CurveProber) -> list[tuple[int, Reason]]:
    return [(question.batch_size, question.reason) for question in prober.asked]


def fails_at(sizes: Collection[int], fault: Fault, forms: Collection[Form]) -> Callable[[int, Form, int], Fault | None]:
    return lambda size, form, _: fault if size in sizes and form in forms else None


@pytest.mark.parametrize(
    ("curve", "gib", "unit", "limit", "probes"),
    [
        (AFFINE, 1, 1, 103, 7),
        (AFFINE, 1, 8, 96, 6),
        (AFFINE, 16, 1, 2297, 9),
        (CONVEX, 1, 1, 102, 7),
        (CONVEX, 1, 8, 96, 5),
        (CONVEX, 16, 1, 1809, 9),
        (FLAT_AT_FIRST, 1, 1, 102, 8),
        (FLAT_AT_FIRST, 16, 1, 1809, 9),
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
    answer, history = found(BatchFinder(multiple_of=unit, recommend=False), CurveProber(curve=curve), gib * GIB)
    assert (answer.max_batch, answer.refuted_at, answer.holes) == (limit, limit + unit, ())
    assert len(history) <= probes
    assert sum(probe.form is Form.LONG for probe in history) == 1


def test_on_a_straight_line_the_limit_itself_is_asked_then_the_next_size() -> None:
    prober = CurveProber(curve=AFFINE)
    found(BatchFinder(multiple_of=8, recommend=False), prober, 4 * GIB)
    assert asked(prober) == [
        (8, Reason.START),
        *[(size, Reason.GROW) for size in (32, 128, 512)],
        (536, Reason.PREDICTED),
        (544, Reason.REFUTE),
        (536, Reason.CERTIFY),
    ]


def test_on_a_curve_that_bends_growth_is_cautious_and_its_one_failure_gives_the_limit() -> None:
    """The line through 16 and 64 leads to 164; as the curve was seen to bend, no more than twice 64 is risked."""
    prober = CurveProber(curve=QUADRATIC)
    found(BatchFinder(recommend=False), prober, GIB)
    assert asked(prober) == [
        (1, Reason.START),
        *[(size, Reason.GROW) for size in (4, 16, 64, 128)],
        (113, Reason.PREDICTED),
        (114, Reason.CORRECT),
        (113, Reason.CERTIFY),
    ]


@pytest.mark.parametrize(
    ("sizes", "fault", "forms", "limit", "holes", "probes"),
    [
        ({3}, SEGFAULT, FORMS, 103, (3,), 8),
        ({12}, SEGFAULT, FORMS, 103, (12,), 9),
        ({48}, SEGFAULT, FORMS, 103, (48,), 9),
        ({48}, SEGFAULT, {Form.LONG}, 103, (), 7),
        ({103}, SEGFAULT, FORMS, 102, (), 13),
        ({103}, SEGFAULT, {Form.LONG}, 102, (), 14),
        ({101, 102, 103}, SEGFAULT, FORMS, 100, (), 14),
        ({103}, OUT_OF_MEMORY, FORMS, 102, (), 12),
        ({50, 60, 70}, OUT_OF_MEMORY, FORMS, 103, (), 7),
    ],
    ids=lambda value: str(value) if isinstance(value, int) else None,
)
def test_holes_cost_a_few_probes_and_are_reported_if_met(
    sizes: Collection[int], fault: Fault, forms: Collection[Form], limit: int, holes: tuple[int, ...], probes: int
) -> None:
    prober = CurveProber(curve=AFFINE, fault=fails_at(sizes, fault, forms))
    answer, history = found(BatchFinder(recommend=False), prober, GIB)
    assert (answer.max_batch, answer.refuted_at, answer.holes) == (limit, limit + 1, holes)
    assert len(history) <= probes


def test_a_memory_failure_counts_as_the_limit_even_where_the_curve_leaves_room() -> None:
    prober = CurveProber(curve=AFFINE, fault=fails_at({48}, OUT_OF_MEMORY, FORMS))
    answer, history = found(BatchFinder(recommend=False), prober, GIB)
    assert (answer.max_batch, answer.refuted_at) == (47, 48)
    assert len(history) <= 11


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(
    ("curve", "gib", "limit", "probes"),
    [
        (AFFINE, 1, 103, 7),
        (AFFINE, 4, 542, 8),
        (CONVEX, 1, 102, 7),
        (QUADRATIC, 1, 113, 8),
        (THRESHOLD, 4, 342, 8),
    ],
)
def test_noise_the_finder_was_told_of_costs_no_probe(
    curve: Curve, gib: int, limit: int, probes: int, seed: int
) -> None:
    prober = CurveProber(curve=curve, noise_bytes=MIB, seed=seed)
    answer, history = found(BatchFinder(noise_bytes=2 * MIB, recommend=False), prober, gib * GIB)
    assert (answer.max_batch, answer.refuted_at) == (limit, limit + 1)
    assert len(history) <= probes


@settings(deadline=None, derandomize=True)
@given(
    lines=st.lists(st.tuples(st.integers(0, 900), st.integers(1, 40)), min_size=1, max_size=3),
    bend=st.integers(0, 3),
    gib=st.sampled_from([1, 4]),
    noise_mib=st.sampled_from([0, 1]),
    seed=st.integers(0, 2**32),
)
def test_no_answer_lies_above_the_limit_or_below_what_noise_allows(
    lines: list[tuple[int, int]], bend: int, gib: int, noise_mib: int, seed: int
) -> None:
    straight = in_phases(*lines)

    def curve(size: int) -> Mapping[Phase, int]:
        return {phase: peak + bend * size * size * MIB // 8 for phase, peak in straight(size).items()}

    def largest(limit_bytes: int) -> int:
        return next(size for size in range(10**5) if max(curve(size + 1).values()) > limit_bytes)

    limit_bytes, noise_bytes = gib * GIB, noise_mib * MIB
    prober = CurveProber(curve=curve, noise_bytes=noise_bytes, seed=seed)
    answer, history = found(BatchFinder(noise_bytes=2 * noise_bytes, recommend=False), prober, limit_bytes)
    assert largest(limit_bytes - noise_bytes) <= answer.max_batch <= largest(limit_bytes)
    assert len(history) <= 2 * log2(answer.max_batch) + 6
