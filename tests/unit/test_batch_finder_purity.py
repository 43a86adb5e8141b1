"""Whatever the probes say, the batch finder ends, answers only what was executed, and depends on the history alone."""

from dataclasses import replace
from math import log2
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.model import Form, ProbeResult, Question, Reason
from autotune.search.batch import BatchFinder
from autotune.search.verdict import why_nothing
from tests.fakes import BUDGET, FAULTS, NO_STEPS, FakeProber, Fault, drive, ends_at

ANY_FAULT = (*FAULTS, NO_STEPS, ends_at(None), ends_at(40))


class Noise:
    """Fails at random, in ways of its own choice, and says something else each time it is asked."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._faults = self._random.sample(ANY_FAULT, self._random.randint(1, 5))
        self._rates = {form: self._random.choice([0.02, 0.1, 0.3, 0.6, 0.9]) for form in Form}

    def fault(self, size: int, form: Form, attempt: int) -> Fault | None:
        return self._random.choice(self._faults) if self._random.random() < self._rates[form] else None

    def step_seconds(self, size: int) -> float:
        return 0.1 + self._random.random()


@settings(deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**32),
    limit=st.integers(0, 5000),
    max_batch=st.integers(8, 5000),
    data_set=st.none() | st.integers(8, 5000),
    start=st.none() | st.integers(1, 5000),
    unit=st.sampled_from([1, 2, 8]),
)
def test_under_noise_it_ends_and_answers_only_sizes_certified_in_the_long_form(
    seed: int, limit: int, max_batch: int, data_set: int | None, start: int | None, unit: int
) -> None:
    noise = Noise(seed)
    finder = BatchFinder(multiple_of=unit, start_batch=start, max_batch=max_batch, data_set_size=data_set)
    prober = FakeProber(fault=noise.fault, step_seconds=noise.step_seconds)
    at_most = round(10 * log2(max_batch)) + 40

    stop, history = drive(finder, prober, replace(BUDGET, limit_bytes=limit), at_most=at_most)

    assert stop.reason.endswith(".") and any(letter.isdigit() for letter in stop.reason)
    fresh = [(p.batch_size, p.form) for p in history if p.reason is not Reason.RETRY]
    assert len(fresh) == len(set(fresh)), "no probe is repeated but by a retry"
    if stop.answer is None:
        assert not why_nothing(history).probe.fits
        return
    answer = stop.answer
    newest_long = {p.batch_size: p for p in history if p.form is Form.LONG}
    assert newest_long[answer.max_batch].fits
    assert newest_long[answer.recommended_batch].fits
    assert answer.recommended_batch <= answer.max_batch <= min(max_batch, data_set or max_batch)
    assert answer.max_batch % answer.step == answer.step % unit == 0
    failed = {p.batch_size for p in history if not p.fits}
    assert failed.issuperset(answer.holes)
    if answer.refuted_at is None:
        assert answer.limited_by in ("max_batch", "data_set")
    else:
        assert answer.refuted_at > answer.max_batch
        assert answer.refuted_at in failed


@settings(deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32), limit=st.integers(0, 3000), start=st.none() | st.integers(1, 3000))
def test_every_prefix_of_a_history_leads_to_the_same_next_probe(seed: int, limit: int, start: int | None) -> None:
    """So an interrupted search goes on exactly where it stopped."""
    noise = Noise(seed)
    finder = BatchFinder(start_batch=start, max_batch=4096)
    prober = FakeProber(fault=noise.fault, step_seconds=noise.step_seconds)
    stop, history = drive(finder, prober, replace(BUDGET, limit_bytes=limit))

    replayed = [BatchFinder(start_batch=start, max_batch=4096).ask(history[:n]) for n in range(len(history) + 1)]

    assert replayed == [*prober.asked, stop]


def test_asking_does_not_touch_the_history() -> None:
    history: list[ProbeResult] = []
    prober = FakeProber()
    finder = BatchFinder()
    while isinstance(reply := finder.ask(history), Question):
        before = tuple(history)
        assert finder.ask(history) == reply
        assert tuple(history) == before
        history.append(prober.probe(reply, BUDGET, 0))
    assert finder.ask(tuple(history)) == reply
