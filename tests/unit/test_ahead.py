"""Probes that run ahead: the same search as on one worker, in fewer rounds; what is lost runs again and proves nothing."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from random import Random

import pytest

from autotune.errors import EnvironmentTrouble, WorkloadError
from autotune.executors.ahead import ATTEMPTS, Ahead
from autotune.executors.bench import Bench
from autotune.model import Budget, Cause, Form, Objective, Outcome, ProbeResult, Question, Reason, Settings, Stop
from autotune.search.batch import BatchFinder
from autotune.search.evaluation import EvaluationFinder
from autotune.search.imagine import imagination
from autotune.search.imagined import Imagined
from tests.fakes import BUDGET, EVALUATION_FAILS, OVER_BUDGET, FakeProber, Fault, drive, result
from tests.unit.planted_bench import PlantedBench
from tests.unit.planted_settings import PlantedMachine
from tests.unit.planted_settings_searches import finder_for, random_machine

Found = tuple[Stop, list[ProbeResult], PlantedBench]


def searched(machine: PlantedMachine, width: int, **options: object) -> Found:
    """A search of settings on so many workers."""
    bench = PlantedBench(machine, width=width)
    return *on(bench, machine, **options), bench


def on(bench: PlantedBench, machine: PlantedMachine, **options: object) -> tuple[Stop, list[ProbeResult]]:
    finder = finder_for(machine, **options)
    return drive(finder, Ahead(finder, bench, (), imagination(finder)), machine.budget, at_most=100)


@cache
def alone(seed: int) -> Found:
    """The search of a random machine on one worker, made once."""
    return searched(random_machine(seed, noise=0.01), 1)


def test_on_several_workers_a_search_sees_and_decides_what_it_does_on_one() -> None:
    for width, seed in ((2, 7), (5, 2)):
        machine = random_machine(seed, noise=0.01)
        bench = PlantedBench(machine, width=width, takes=partial(unequal, Random(seed)))
        stop, history = on(bench, machine)
        one = alone(seed)
        assert (stop, [as_asked(probe) for probe in history]) == (one[0], [as_asked(probe) for probe in one[1]])


def unequal(random: Random, question: Question) -> float:
    """Rounds that a probe takes."""
    return random.uniform(0.1, 5)


def as_asked(probe: ProbeResult) -> tuple[object, ...]:
    """All of a probe but the time that others had to be waited for."""
    return probe.batch_size, probe.form, probe.reason, probe.settings, probe.outcome, probe.measurement.step_seconds


def test_eight_candidates_take_two_workers_at_most_six_tenths_of_the_rounds_of_one_and_four_half() -> None:
    one, two, four = alone(7), *(searched(random_machine(7, noise=0.01), width) for width in (2, 4))
    candidates = {probe.settings for probe in one[1] if probe.form is Form.TIMED and probe.settings != Settings()}
    assert len(candidates) == 8
    assert one[2].clock == len(one[1]) and one[0] == two[0] == four[0]
    assert two[2].clock <= 0.6 * one[2].clock and four[2].clock <= 0.5 * one[2].clock


@pytest.mark.parametrize("objective", [Objective.BATCH, Objective.MEMORY])
def test_other_objectives_come_to_the_same_answer(objective: Objective) -> None:
    options = {"objective": objective, **({"batch": {"max_batch": 16}} if objective is Objective.MEMORY else {})}
    one, together = (searched(random_machine(3), width, **options) for width in (1, 3))
    assert one[0] == together[0]
    assert together[2].clock < one[2].clock


def test_a_search_of_the_batch_alone_stays_the_same_and_certifies_beside_refuting() -> None:
    def run(width: int) -> Found:
        prober = FakeProber(fixed_bytes=100, per_sample_bytes=9, step_seconds=lambda size: 0.01 * size)
        bench, finder = PlantedBench(prober, width=width), BatchFinder(recommend=False)
        return *drive(finder, Ahead(finder, bench, (), imagination(finder))), bench

    one, together = run(1), run(2)
    assert one[0] == together[0] and [p.batch_size for p in one[1]] == [p.batch_size for p in together[1]]
    assert together[2].clock < one[2].clock


def test_a_lost_probe_runs_again_and_is_told_but_is_no_evidence() -> None:
    machine, lost = random_machine(2, noise=0.01), list[ProbeResult]()
    one = alone(2)
    bench = PlantedBench(machine, width=2, dies=lambda question, ticket: ticket in (0, 3, 4, 9))
    finder = finder_for(machine)
    stop, history = drive(finder, Ahead(finder, bench, (), imagination(finder), lost=lost.append), machine.budget)
    assert stop == one[0]
    assert [as_asked(probe) for probe in history] == [as_asked(probe) for probe in one[1]]
    assert len(lost) == 4
    for probe in lost:
        assert probe.outcome is Outcome.UNRELIABLE and not probe.outcome.is_ceiling
        assert probe.failure is not None and probe.failure.cause is Cause.LOST
        assert probe.failure.message == "worker 1 was lost: planted"


def test_a_probe_that_is_lost_every_time_ends_the_search_with_what_happened() -> None:
    lost: list[ProbeResult] = []
    bench = PlantedBench(FakeProber(), dies=lambda question, ticket: question.batch_size > 4)
    finder = BatchFinder()
    ahead = Ahead(finder, bench, (), imagination(finder), lost=lost.append)
    with pytest.raises(EnvironmentTrouble, match=f"lost {ATTEMPTS} times, last worker 1: planted"):
        drive(finder, ahead)
    sizes = [probe.batch_size for probe in lost]
    assert sizes.count(16) == ATTEMPTS + 1  # once ahead
    assert sizes.count(64) == 1  # what was lost ahead runs ahead no more


def test_an_error_of_a_probe_is_raised_when_it_is_asked_for() -> None:
    class Failing:
        def probe(self, question: Question, budget: Budget, reserve_bytes: int) -> ProbeResult:
            raise WorkloadError("planted")

    bench = PlantedBench(Failing())
    with pytest.raises(WorkloadError, match="planted"):
        Ahead(None, bench, (), imagination(None)).probe(QUESTION, BUDGET, 0)


QUESTION = Question(batch_size=8, form=Form.LONG, reason=Reason.CERTIFY)


class Asking:
    """Asks for batches of 8, 9, 10 … in the long form."""

    def ask(self, history: Sequence[ProbeResult]) -> Question | Stop:
        return Question(batch_size=8 + len(history), form=Form.LONG, reason=Reason.CERTIFY)


def fits(question: Question, history: Sequence[ProbeResult]) -> Imagined:
    return Imagined((result(question.batch_size, question.form),))


def test_what_ran_ahead_under_a_looser_cap_counts_only_if_it_would_have_run_under_the_tighter() -> None:
    """Its cap allowed for less memory outside the allocator than was known when it was asked for."""

    def breaks(size: int, form: Form, attempt: int) -> Fault | None:
        return OVER_BUDGET if size == 9 and attempt == 0 else None

    for breaks_budget, held, again in ((False, 500, False), (False, 950, True), (True, 500, True)):
        prober = Holding(held=held)
        if breaks_budget:
            prober.fault = breaks
        bench = PlantedBench(prober)
        ahead = Ahead(Asking(), bench, (), fits)
        ahead.probe(QUESTION, BUDGET, 0)
        assert [question.batch_size for question in bench.handed_out][:2] == [8, 9]
        second = ahead.probe(Question(batch_size=9, form=Form.LONG, reason=Reason.CERTIFY), BUDGET, 100)
        assert second.batch_size == 9
        assert (sum(question.batch_size == 9 for question in bench.handed_out) == 2) is again


@dataclass(kw_only=True)
class Holding(FakeProber):
    """Every probe holds so many bytes from the driver."""

    held: int

    def probe(self, question: Question, budget: Budget, reserve_bytes: int) -> ProbeResult:
        answer = super().probe(question, budget, reserve_bytes)
        return replace(answer, measurement=replace(answer.measurement, peak_reserved_bytes=self.held))


def test_what_ran_ahead_and_was_not_asked_for_can_be_kept_and_is_dropped_at_the_end() -> None:
    bench = PlantedBench(FakeProber(), width=3, takes=lambda question: 1.0 if question.batch_size < 10 else 9.0)
    ahead = Ahead(Asking(), bench, (), fits)
    ahead.probe(QUESTION, BUDGET, 0)
    kept: list[ProbeResult] = []
    ahead.keep_all(kept.append)
    assert [probe.batch_size for probe in kept] == [9]
    ahead.close()
    assert bench.dropped == {2}  # the tenth still ran


def test_where_only_the_course_is_foreseen_what_is_asked_at_other_sizes_than_will_be_does_not_run_ahead() -> None:
    def vaguely(question: Question, history: Sequence[ProbeResult]) -> Imagined:
        return Imagined(fits(question, history).results, lambda later: later.batch_size == 11)

    bench = PlantedBench(FakeProber(), width=3)
    Ahead(Asking(), bench, (), vaguely).probe(QUESTION, BUDGET, 0)
    assert [question.batch_size for question in bench.handed_out] == [8, 11]


def test_what_takes_far_longer_than_what_is_waited_for_does_not_run_ahead() -> None:
    for seconds, handed_out in ((3.0, [8, 9]), (30.0, [8])):
        takes = {8: 1.0, 9: seconds}

        def lasting(question: Question, history: Sequence[ProbeResult], takes: dict[int, float] = takes) -> Imagined:
            (one,) = fits(question, history).results
            return Imagined((replace(one, seconds=takes.get(question.batch_size, 1.0)),))

        bench = PlantedBench(FakeProber())
        Ahead(Asking(), bench, (), lasting).probe(QUESTION, BUDGET, 0)
        assert [question.batch_size for question in bench.handed_out] == handed_out


def test_when_time_is_out_nothing_runs_ahead_and_a_bench_is_one_by_its_shape() -> None:
    bench = PlantedBench(FakeProber(), width=3)
    Ahead(Asking(), bench, (), fits, until=lambda: True).probe(QUESTION, BUDGET, 0)
    assert len(bench.handed_out) == 1
    assert isinstance(bench, Bench) and not isinstance(FakeProber(), Bench)


def test_evaluation_is_searched_in_the_same_steps() -> None:
    def run(width: int) -> Found:
        prober = FakeProber(
            fixed_bytes=100,
            per_sample_bytes=9,
            step_seconds=lambda size: 0.01,
            evaluate=lambda size, question: EVALUATION_FAILS if size > 20 else None,
        )
        bench, finder = PlantedBench(prober, width=width), EvaluationFinder(finder=BatchFinder(recommend=False))
        return *drive(finder, Ahead(finder, bench, (), imagination(finder))), bench

    one, together = run(1), run(3)
    assert one[0] == together[0] and one[0].answer is not None and one[0].answer.evaluation is not None
    assert [as_asked(probe) for probe in together[1]] == [as_asked(probe) for probe in one[1]]
    assert together[2].clock < one[2].clock
