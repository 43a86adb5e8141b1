"""Evaluation apart where settings are searched: each settings' own limit, and that of the winner beside its batch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from autotune.model import (
    Answer,
    Budget,
    Cause,
    Compile,
    Evaluation,
    Form,
    Outcome,
    Precision,
    ProbeResult,
    Question,
    Settings,
)
from autotune.search.allocators import BestAllocator
from autotune.search.batch import BatchFinder
from autotune.search.evaluation import EvaluationFinder
from autotune.search.settings import SettingsFinder
from tests.fakes import EVALUATION_FAILS, Evaluating, Fault, drive, result
from tests.unit.planted_settings import PlantedMachine, space_of


def search(machine: PlantedMachine, limit: Callable[[Settings], int]) -> tuple[Answer, list[ProbeResult], Evaluating]:
    """Search settings on it."""
    finder = BatchFinder(settings=machine.space.base)
    prober = Evaluating(machine, limit)
    strategy = EvaluationFinder(finder=SettingsFinder(finder=finder, space=machine.space))
    stop, history = drive(strategy, prober, machine.budget)
    assert stop.answer is not None, stop.reason
    return stop.answer, history, prober


def faster_in_bf16(*knobs: str, compiled: float = 0.0) -> PlantedMachine:
    return PlantedMachine(
        space=space_of(allow=knobs),
        speed={("precision", "bf16"): 0.5, ("compile", "default"): compiled},
        memory={("precision", "bf16"): -0.4},
    )


def certified_with(history: Sequence[ProbeResult], answer: Answer) -> list[int | None]:
    return [
        p.evaluated_at
        for p in history
        if p.form is Form.LONG and p.fits and (p.batch_size, p.settings) == (answer.max_batch, answer.settings)
    ]


def test_the_winner_s_evaluation_is_its_own_although_another_s_was_found_first() -> None:
    machine = faster_in_bf16("precision")
    own = lambda settings: 22 if settings.precision is Precision.BF16 else 9
    answer, history, _ = search(machine, own)
    assert answer.settings is not None and answer.settings.precision is Precision.BF16
    assert answer.evaluation is not None
    at_most = min(answer.max_batch, 22)
    assert answer.evaluation.max_batch == at_most
    assert answer.evaluation.max_batch in certified_with(history, answer)


def test_settings_are_chosen_as_if_there_were_no_evaluation() -> None:
    machine, alone = faster_in_bf16("precision"), faster_in_bf16("precision")
    answer, _, _ = search(machine, lambda settings: 3)
    stop, _ = drive(
        SettingsFinder(finder=BatchFinder(settings=alone.space.base), space=alone.space), alone, alone.budget
    )
    assert stop.answer is not None
    assert (answer.settings, answer.max_batch, answer.recommended_batch) == (
        stop.answer.settings,
        stop.answer.max_batch,
        stop.answer.recommended_batch,
    )
    assert answer.evaluation == Evaluation(max_batch=3, refuted_at=4, limited_by="device_memory")


def test_no_size_of_evaluation_is_compiled_for_its_own_sake() -> None:
    machine = faster_in_bf16("precision", "compile", compiled=0.4)
    answer, history, prober = search(machine, lambda settings: 5 if settings.compile is Compile.OFF else 1000)
    assert answer.settings is not None and answer.settings.compile is Compile.DEFAULT
    assert answer.evaluation == Evaluation(max_batch=5, refuted_at=None, limited_by="not_searched")
    assert 5 in certified_with(history, answer)
    assert not any(q.form is Form.EVALUATE and q.settings.compile is not Compile.OFF for q in prober.asked)


def test_an_evaluation_that_fits_nowhere_leaves_the_settings_and_the_batch() -> None:
    answer, _, prober = search(faster_in_bf16("precision"), lambda settings: 0)
    assert answer.evaluation is not None and answer.evaluation.fits_nothing
    assert answer.settings is not None and answer.settings.precision is Precision.BF16
    assert sum(q.evaluate_at != 0 and q.form is not Form.COMPARE for q in prober.asked) < 12


def test_a_search_of_settings_killed_anywhere_goes_on_as_if_it_had_not_been() -> None:
    machine = faster_in_bf16("precision")
    own = lambda settings: 22 if settings.precision is Precision.BF16 else 9
    _, history, prober = search(machine, own)
    strategy = EvaluationFinder(
        finder=SettingsFinder(finder=BatchFinder(settings=machine.space.base), space=machine.space)
    )
    for count, asked in enumerate(prober.asked):
        assert strategy.ask(tuple(history[:count])) == asked


def test_what_was_certified_when_time_ran_out_tells_its_evaluation() -> None:
    machine = faster_in_bf16("precision")
    _, history, _ = search(machine, lambda settings: 9)
    strategy = EvaluationFinder(
        finder=SettingsFinder(finder=BatchFinder(settings=machine.space.base), space=machine.space)
    )
    first = next(i for i, p in enumerate(history) if p.form is Form.LONG and p.fits)
    stop = strategy.conclude(history[: first + 1])
    assert stop is not None and stop.answer is not None and stop.answer.evaluation is not None
    assert (stop.answer.complete, stop.answer.evaluation.max_batch) == (False, history[first].evaluated_at)


THRASHES = Fault(outcome=Outcome.UNSAFE, cause=Cause.THRASHING)
EXPANDABLE = "expandable_segments:True"


@dataclass
class TwoAllocators:
    """Trains 64 and evaluates 15 with native segments, where 65 thrashes; 70 and 20 with expandable ones."""

    asked: list[Question] = field(default_factory=list)

    def probe(self, question: Question, budget: Budget, reserve_bytes: int) -> ProbeResult:
        """Answer at once."""
        self.asked.append(question)
        trains, evaluates = (70, 20) if question.settings.allocator else (64, 15)
        size = question.batch_size if question.evaluate_at is None else question.evaluate_at
        fault = THRASHES if question.batch_size > trains else EVALUATION_FAILS if size > evaluates else None
        return result(
            question.batch_size,
            question.form,
            fault,
            reason=question.reason,
            settings=question.settings,
            evaluate_at=question.evaluate_at,
            evaluated=None if fault else size,
        )


def test_each_configuration_of_the_allocator_has_an_evaluation_of_its_own() -> None:
    finder = BestAllocator(BatchFinder(recommend=False), (EXPANDABLE,))
    stop, history = drive(EvaluationFinder(finder=finder), TwoAllocators())
    assert stop.answer is not None and stop.answer.settings is not None
    assert (stop.answer.settings.allocator, stop.answer.max_batch) == (EXPANDABLE, 70)
    assert stop.answer.evaluation == Evaluation(max_batch=20, refuted_at=21, limited_by="device_memory")
    assert 20 in certified_with(history, stop.answer)
