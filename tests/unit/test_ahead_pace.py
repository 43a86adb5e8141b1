"""How long a search takes on two workers where probes take as long as on a GPU, and what it does while others run."""

from functools import cache

import pytest

from autotune.model import Compile, Form, Question, Reason
from tests.unit.planted_pace import Paced, Run, paced_search


@cache
def run(width: int, benchmark: float = 1.03) -> Run:
    return paced_search(Paced(benchmark=benchmark), width)


def began(run: Run, form: Form, reason: Reason) -> list[tuple[float, float, Question]]:
    """Spans of such probes."""
    return [span for span in run.bench.spans if (span[2].form, span[2].reason) == (form, reason)]


@pytest.mark.parametrize(("benchmark", "share"), [(1.03, 0.55), (0.94, 0.6)])
def test_eight_candidates_take_two_workers_little_more_than_half_the_time_of_one(
    benchmark: float, share: float
) -> None:
    """In the second search a candidate turns out to be the best, so that what ran ahead for the old one ran in vain."""
    one, two = run(1, benchmark), run(2, benchmark)
    print(f"one worker {one.bench.clock:.1f} s, two {two.bench.clock:.1f} s", two.timeline, sep="\n")
    assert len(one.candidates) == 8
    assert two.stop == one.stop and two.found == one.found
    assert two.bench.clock <= share * one.bench.clock


def test_the_first_recording_the_certifying_probe_and_the_winners_recording_each_have_others_beside_them() -> None:
    spans = run(2).bench.spans
    for reason in (Reason.TRACE, Reason.BASELINE, Reason.PREDICTED):
        for start, end, question in [span for span in spans if span[2].reason is reason]:
            beside = [other for other in spans if other[2] != question and other[0] < end and other[1] > start]
            assert beside, question
    (predicted,), (refuted,) = (began(run(2), Form.LONG, reason) for reason in (Reason.PREDICTED, Reason.REFUTE))
    assert predicted[0] <= refuted[0] < predicted[1]


def test_nothing_is_compiled_for_the_first_time_while_another_candidate_may_still_win() -> None:
    one, two = (paced_search(Paced(), width, forbid=("allocator",)) for width in (1, 2))
    print(two.timeline)
    assert two.stop == one.stop and two.found == one.found
    first = next(span for span in two.bench.spans if span[2].settings.compile is not Compile.OFF)
    others = [span for span in two.bench.spans if span[0] < first[0]]
    assert all(ended <= first[0] for _, ended, _ in others)
    assert two.bench.clock <= 0.65 * one.bench.clock
