"""Evaluation's limit is found apart from training's, on machines whose two limits are planted."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from autotune.model import (
    Answer,
    Cause,
    Evaluation,
    Form,
    Outcome,
    Phase,
    PhaseMemory,
    ProbeResult,
    Question,
    Reason,
    Settings,
    Stop,
)
from autotune.search.apart import Apart
from autotune.search.batch import BatchFinder
from autotune.search.confirm import ConfirmKnown
from autotune.search.evaluation import EvaluationFinder
from tests.fakes import BUG, EVALUATION_FAILS, HANGS, KILLED, OUT_OF_MEMORY, FakeProber, Fault, drive, result

TRAINS = 64
Evaluates = Callable[[int, Question], Fault | None]


def up_to(limit: int, fault: Fault = EVALUATION_FAILS) -> Evaluates:
    """An evaluation whose limit does not depend on training."""
    return lambda size, question: fault if size > limit else None


def machine(evaluate: Evaluates | None) -> FakeProber:
    """Training fits up to 64."""
    return FakeProber(fixed_bytes=360, per_sample_bytes=10, evaluate=evaluate)


def finder(asked: int | None = None, *, start_batch: int | None = None) -> EvaluationFinder:
    return EvaluationFinder(finder=BatchFinder(recommend=False, start_batch=start_batch), asked=asked)


def answer(stop: Stop) -> tuple[int, int | None, Evaluation]:
    """(training's limit, the size that refutes it, evaluation's)."""
    assert stop.answer is not None and stop.answer.evaluation is not None, stop.reason
    return stop.answer.max_batch, stop.answer.refuted_at, stop.answer.evaluation


def pairs(prober: FakeProber) -> list[tuple[int, int | None, Form]]:
    return [(q.batch_size, q.evaluate_at, q.form) for q in prober.asked]


def test_c11_both_limits_are_exact_and_an_evaluation_that_fails_leaves_training_alone() -> None:
    prober = machine(up_to(15))
    stop, history = drive(finder(), prober)
    assert answer(stop) == (64, 65, Evaluation(max_batch=15, refuted_at=16, limited_by="device_memory"))
    assert pairs(prober) == [
        (1, None, Form.SHORT),
        (2, None, Form.SHORT),
        (8, None, Form.SHORT),
        (32, None, Form.SHORT),
        (1, 16, Form.EVALUATE),
        (1, 12, Form.EVALUATE),
        (1, 14, Form.EVALUATE),
        (1, 15, Form.EVALUATE),
        (32, 15, Form.SHORT),
        (64, 15, Form.SHORT),
        (65, 15, Form.SHORT),
        (64, 15, Form.LONG),
    ]
    assert history[-1].evaluated_at == 15


def test_an_evaluation_that_never_fails_costs_no_probe_and_its_larger_sizes_are_not_searched() -> None:
    prober, without = machine(up_to(1000)), machine(None)
    stop, _ = drive(finder(), prober)
    drive(BatchFinder(recommend=False), without)
    assert answer(stop) == (64, 65, Evaluation(max_batch=64, refuted_at=None, limited_by="not_searched"))
    assert prober.asked == without.asked


def test_c11_an_evaluation_that_fails_at_every_size_leaves_training_s_answer() -> None:
    prober = machine(up_to(0))
    stop, _ = drive(finder(), prober)
    trains, refuted_at, evaluation = answer(stop)
    assert (trains, refuted_at) == (64, 65)
    assert evaluation == Evaluation(max_batch=None, refuted_at=1, limited_by="device_memory")
    assert evaluation.fits_nothing
    assert pairs(prober)[1:] == [(size, 0, form) for size, _, form in pairs(prober)[1:]], "and is not tried again"


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 8, 9, 31, 32, 33, 50, 63])
@pytest.mark.parametrize("start", [None, 4, 32, 4096])
def test_whatever_the_limits_are_both_are_found_in_few_probes(limit: int, start: int | None) -> None:
    prober = machine(up_to(limit))
    stop, _ = drive(finder(start_batch=start), prober)
    assert answer(stop) == (64, 65, Evaluation(max_batch=limit, refuted_at=limit + 1, limited_by="device_memory"))
    assert sum(q.form is Form.EVALUATE for q in prober.asked) <= 9
    last = prober.asked[-1]
    assert (last.batch_size, last.evaluate_at, last.form) == (64, limit, Form.LONG)


def test_where_evaluation_needs_more_beside_a_large_batch_its_answer_goes_down_and_never_training_s() -> None:
    beside = lambda size, question: EVALUATION_FAILS if size > (12 if question.batch_size > 60 else 15) else None
    prober = machine(beside)
    stop, _ = drive(finder(), prober)
    assert answer(stop) == (64, 65, Evaluation(max_batch=12, refuted_at=13, limited_by="device_memory"))


def test_where_no_evaluation_goes_with_the_largest_batch_training_keeps_it() -> None:
    prober = machine(
        lambda size, question: EVALUATION_FAILS if size > (0 if question.batch_size > 60 else 15) else None
    )
    stop, _ = drive(finder(), prober)
    trains, _, evaluation = answer(stop)
    assert trains == 64
    assert (evaluation.max_batch, evaluation.refuted_at) == (None, 1)


def test_an_evaluation_limit_above_that_of_training_is_paired_with_it() -> None:
    """The evaluation fails at 48 in the short form; in the long form training stops at 20, short of evaluation's 40."""
    fault = lambda size, form, attempt: OUT_OF_MEMORY if form is Form.LONG and size > 20 else None
    prober = FakeProber(fixed_bytes=360, per_sample_bytes=10, fault=fault, evaluate=up_to(40))
    stop, _ = drive(finder(start_batch=48), prober)
    assert answer(stop) == (20, 21, Evaluation(max_batch=40, refuted_at=41, limited_by="device_memory"))
    assert any((q.batch_size, q.evaluate_at, q.form) == (20, 40, Form.LONG) for q in prober.asked)


@pytest.mark.parametrize(("asked", "limit"), [(100, 100), (5, 64), (1, 1)])
def test_a_size_asked_for_is_that_of_every_evaluation(asked: int, limit: int) -> None:
    prober = machine(up_to(limit))
    stop, _ = drive(finder(asked), prober)
    assert answer(stop) == (64, 65, Evaluation(max_batch=asked, refuted_at=None, limited_by="eval_batch"))
    assert {q.evaluate_at for q in prober.asked} == {asked}
    assert all(q.form is not Form.EVALUATE for q in prober.asked)


def test_c11_a_size_asked_for_that_fails_is_evaluation_s_fault_and_the_largest_below_it_is_told() -> None:
    stop, history = drive(finder(asked=80), machine(up_to(50)))
    assert answer(stop) == (64, 65, Evaluation(max_batch=50, refuted_at=51, limited_by="device_memory"))
    first = history[0]
    assert (first.batch_size, first.evaluate_at, first.outcome) == (1, 80, Outcome.OUT_OF_MEMORY)


def test_an_evaluation_that_hangs_is_a_limit_of_evaluation() -> None:
    stop, _ = drive(finder(), machine(up_to(15, replace(HANGS, phase=Phase.EVALUATE))))
    trains, _, evaluation = answer(stop)
    assert (trains, evaluation.max_batch, evaluation.limited_by) == (64, 15, "timeout")


def test_a_kill_in_evaluation_is_an_accident_when_it_happens_once() -> None:
    left = [1]

    def killed_once(size: int, question: Question) -> Fault | None:
        return replace(KILLED, phase=Phase.EVALUATE) if size == 8 and left and left.pop() else None

    stop, _ = drive(finder(), machine(killed_once))
    assert answer(stop) == (64, 65, Evaluation(max_batch=64, refuted_at=None, limited_by="not_searched"))


def test_a_bug_in_evaluation_is_the_workload_s_and_no_limit() -> None:
    stop, history = drive(finder(), machine(up_to(0, replace(BUG, phase=Phase.EVALUATE))))
    assert stop.answer is None
    assert len(history) == 1


def test_training_that_fits_nowhere_is_told_as_before() -> None:
    stop, _ = drive(finder(), FakeProber(fixed_bytes=2000, evaluate=up_to(15)))
    assert stop.answer is None
    assert "Not even the smallest size fits" in stop.reason


@pytest.mark.parametrize("asked", [None, 80])
@pytest.mark.parametrize(
    "evaluate",
    [up_to(15), up_to(0), lambda size, q: EVALUATION_FAILS if size > (12 if q.batch_size > 60 else 15) else None],
    ids=["limit", "nothing", "less beside"],
)
def test_a_search_killed_anywhere_goes_on_as_if_it_had_not_been(evaluate: Evaluates, asked: int | None) -> None:
    stop, history = drive(finder(asked), machine(evaluate))
    for count in range(len(history)):
        reply = finder(asked).ask(tuple(history[:count]))
        assert isinstance(reply, Question)
        following = history[count]
        assert (reply.batch_size, reply.evaluate_at, reply.form, reply.reason) == (
            following.batch_size,
            following.evaluate_at,
            following.form,
            following.reason,
        )
    assert finder(asked).ask(tuple(history)) == stop


def test_time_that_runs_out_in_evaluation_s_search_leaves_training_s_answer_unfinished() -> None:
    """Certified before the evaluation failed: only evaluation's own limit is missing."""
    history = [
        result(8, Form.LONG, reason=Reason.CERTIFY, need_bytes=440, evaluated=8),
        result(9, Form.SHORT, OUT_OF_MEMORY, need_bytes=450),
        result(12, Form.SHORT, EVALUATION_FAILS, need_bytes=480),
    ]
    asking = finder().ask(history)
    assert isinstance(asking, Question) and asking.form is Form.EVALUATE
    stop = finder().conclude(history)
    assert stop is not None and stop.answer is not None
    assert (stop.answer.max_batch, stop.answer.complete) == (8, False)
    assert stop.answer.evaluation == Evaluation(max_batch=8, refuted_at=12, limited_by="device_memory")


def test_time_that_runs_out_before_training_s_answer_leaves_none() -> None:
    assert finder().conclude([result(8, evaluated=8)]) is None


def known(evaluation: Evaluation | None) -> Answer:
    return Answer(
        max_batch=64,
        refuted_at=65,
        recommended_batch=64,
        limited_by="device_memory",
        step=1,
        settings=Settings(),
        evaluation=evaluation,
    )


@pytest.mark.parametrize(
    ("evaluation", "evaluate_at"),
    [
        (None, None),
        (Evaluation(max_batch=64, refuted_at=None, limited_by="not_searched"), None),
        (Evaluation(max_batch=15, refuted_at=16, limited_by="device_memory"), 15),
        (Evaluation(max_batch=None, refuted_at=1, limited_by="device_memory"), 0),
    ],
)
def test_a_known_answer_is_confirmed_with_the_evaluation_that_goes_with_it(
    evaluation: Evaluation | None, evaluate_at: int | None
) -> None:
    strategy = ConfirmKnown(known(evaluation), Settings())
    stop, (probe,) = drive(strategy, machine(up_to(64)))
    assert (probe.batch_size, probe.evaluate_at, probe.form) == (64, evaluate_at, Form.LONG)
    assert stop.answer == known(evaluation)


def test_a_known_answer_whose_evaluation_no_longer_fits_does_not_hold() -> None:
    evaluation = Evaluation(max_batch=15, refuted_at=16, limited_by="device_memory")
    stop, _ = drive(ConfirmKnown(known(evaluation), Settings()), machine(up_to(14)))
    assert stop.answer is None


def test_training_sees_nothing_of_evaluation_once_that_has_a_limit() -> None:
    failed = result(16, Form.SHORT, EVALUATION_FAILS, need_bytes=520)
    apart = Apart.of([result(8, need_bytes=440, evaluated=8), failed, result(1, Form.EVALUATE, evaluate_at=12)])
    assert [(p.batch_size, p.form) for p in apart.training] == [(8, Form.SHORT)]
    assert {p.failure.cause for p in apart.evaluations(Settings()) if p.failure} == {Cause.DEVICE_MEMORY}


def holding(probe: ProbeResult, **held: int) -> ProbeResult:
    """With these peaks by phase; all together that of the probe is 350."""
    phases = tuple(PhaseMemory(phase=Phase(name), peak_allocated_bytes=peak) for name, peak in held.items())
    return replace(probe, measurement=replace(probe.measurement, phases=phases, peak_allocated_bytes=350))


def test_what_was_held_is_told_apart_where_both_ran() -> None:
    failed = result(16, Form.SHORT, EVALUATION_FAILS)
    ran = holding(result(8, evaluated=8), forward=300, evaluate=350)
    died = holding(result(32, fault=OUT_OF_MEMORY), forward=300, evaluate=320)
    silent, trained = holding(result(12)), holding(result(4), forward=300)
    apart = Apart.of([ran, failed, died, silent, trained])
    peaks = {p.batch_size: p.measurement.peak_allocated_bytes for p in apart.training}
    assert peaks == {8: 300, 32: 350, 12: 350, 4: 350}, "an out-of-memory held what it held"
    assert {p.reason for p in apart.training} == {Reason.START}
    seen = holding(ran, forward=350, evaluate=310)
    assert [p.measurement.peak_allocated_bytes for p in Apart.of([seen]).evaluations(Settings())] == [310]


def test_what_fails_beside_another_training_says_nothing_of_this_one() -> None:
    apart = Apart.of([result(32, Form.LONG, EVALUATION_FAILS, evaluate_at=16)])
    beside = (None, (32, Settings()), (64, Settings()))
    assert [[p.batch_size for p in apart.evaluations(Settings(), it)] for it in beside] == [[16], [16], []]


def test_only_evaluations_below_all_that_failed_are_known_to_be_good() -> None:
    ran = [result(1, Form.EVALUATE, evaluate_at=size, evaluated=size) for size in (4, 8, 12, 20)]
    failed = [result(1, Form.EVALUATE, EVALUATION_FAILS, evaluate_at=size) for size in (10, 24)]
    assert Apart.of([*ran, *failed]).known_good(Settings()) == 8


def test_of_evaluations_that_ran_beside_one_training_the_largest_goes_with_it() -> None:
    ran = [result(32, Form.LONG, evaluate_at=size, evaluated=size) for size in (8, 16, 4)]
    assert Apart.of(ran).paired(32, Settings()) == 16


def test_an_evaluation_that_was_killed_has_failed_and_one_with_a_bug_has_not() -> None:
    killed, bug = (result(16, fault=replace(fault, phase=Phase.EVALUATE)) for fault in (KILLED, BUG))
    assert [p.batch_size for p in Apart.of([killed]).evaluations(Settings())] == [16]
    assert Apart.of([bug]).evaluations(Settings()) == ()
