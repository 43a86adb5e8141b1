"""A search of the batch alone under a time budget: there is time to certify, and with time enough nothing is different."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from autotune.model import Budget, Form, ProbeResult, Question, Reason, Stop
from autotune.search.allocators import BestAllocator
from autotune.search.batch import BatchFinder
from autotune.search.in_time import InTime
from autotune.search.settings import spent
from tests.fakes import BUDGET, FakeProber, drive

FINDER = BestAllocator(BatchFinder(), ())
STEP_S = 1.0
LIMIT = 100


@dataclass
class Timed:
    """Each step takes a second and each process one more to start."""

    prober: FakeProber = field(default_factory=FakeProber)

    def probe(self, question: Question, budget: Budget, reserve_bytes: int) -> ProbeResult:
        seconds = 1 + STEP_S * question.form.steps
        return replace(self.prober.probe(question, budget, reserve_bytes), seconds=seconds)


def within(time_budget_s: float, prober: FakeProber) -> tuple[Stop | None, list[ProbeResult]]:
    """The search as the loop drives it: nothing is begun once the time is up."""
    finder, timed = InTime(finder=FINDER, time_budget_s=time_budget_s, gone_s=spent), Timed(prober)
    history: list[ProbeResult] = []
    while spent(history) < time_budget_s:
        reply = finder.ask(history)
        if isinstance(reply, Stop):
            return reply, history
        history.append(timed.probe(reply, replace(BUDGET, limit_bytes=LIMIT), 0))
    return finder.conclude(history), history


def forms(history: Sequence[ProbeResult]) -> list[tuple[int, Form]]:
    return [(p.batch_size, p.form) for p in history]


def test_with_time_enough_nothing_is_asked_otherwise() -> None:
    stop, plain = drive(FINDER, Timed(), replace(BUDGET, limit_bytes=LIMIT))
    found, history = within(2 * spent(plain), FakeProber())
    assert (found, forms(history)) == (stop, forms(plain))
    assert found is not None and found.answer is not None and found.answer.max_batch == LIMIT


@pytest.mark.parametrize("seconds", range(12, 100, 4))
def test_once_a_first_size_fitted_there_is_an_answer_at_the_end(seconds: int) -> None:
    stop, history = within(seconds, FakeProber())
    assert stop is not None and stop.answer is not None
    best = stop.answer.max_batch
    assert best in {p.batch_size for p in history if p.fits and p.form is Form.LONG}
    assert stop.answer.complete == (best == LIMIT)
    assert spent(history) <= seconds + 1 + STEP_S * Form.LONG.steps


def test_more_time_is_no_smaller_an_answer() -> None:
    answers = [within(seconds, FakeProber())[0] for seconds in range(12, 100, 4)]
    sizes = [stop.answer.max_batch for stop in answers if stop is not None and stop.answer is not None]
    assert sizes == sorted(sizes) and sizes[0] < LIMIT // 4 and sizes[-1] > LIMIT // 2


def test_a_size_that_fails_to_be_certified_is_followed_by_smaller_ones() -> None:
    _, history = within(60, FakeProber(long_extra_bytes=90))
    certify = [p for p in history if p.form is Form.LONG]
    assert not certify[0].fits and certify[0].reason is Reason.CERTIFY
    assert certify[1].batch_size < certify[0].batch_size


def test_what_is_certified_is_not_certified_again() -> None:
    _, history = within(60, FakeProber())
    certify = [p.batch_size for p in history if p.form is Form.LONG and p.fits]
    assert len(certify) == len(set(certify))


def test_a_recording_certifies_nothing_and_is_no_size_to_certify() -> None:
    recording = Timed().probe(Question(batch_size=7, form=Form.SHORT, reason=Reason.TRACE), BUDGET, 0)
    finder = InTime(finder=BestAllocator(BatchFinder(trace=True), ()), time_budget_s=5, gone_s=spent)
    reply = finder.ask([recording])
    assert isinstance(reply, Question) and reply.reason is not Reason.CERTIFY
