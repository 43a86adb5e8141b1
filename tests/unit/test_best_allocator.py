"""The limit under several configurations of the allocator, without a recording: fragmentation is the reason to look."""

from dataclasses import dataclass, field, replace

import pytest

from autotune.model import Budget, ProbeResult, Question, Reason, Settings, Stop
from autotune.search.allocators import BestAllocator
from autotune.search.batch import BatchFinder
from tests.fakes import OUT_OF_MEMORY, drive, result

EXPANDABLE = "expandable_segments:True"


@dataclass
class TwoAllocators:
    """Fits up to ``limits[allocator]``; an out-of-memory of the native one is or is not fragmentation."""

    limits: dict[str, int]
    fragmented: bool
    asked: list[Question] = field(default_factory=list)

    def probe(self, question: Question, budget: Budget, reserve_bytes: int) -> ProbeResult:
        self.asked.append(question)
        allocator = question.settings.allocator
        fits = question.batch_size <= self.limits[allocator]
        answer = result(
            question.batch_size,
            question.form,
            None if fits else OUT_OF_MEMORY,
            reason=question.reason,
            need_bytes=question.batch_size,
            settings=question.settings,
        )
        if answer.failure is None:
            return answer
        return replace(answer, failure=replace(answer.failure, fragmented=self.fragmented and not allocator))


def search(device: TwoAllocators, **options: object) -> tuple[Stop, list[ProbeResult]]:
    finder = BatchFinder(recommend=False, settings=Settings(accumulate=2), **options)  # type: ignore[arg-type]
    return drive(BestAllocator(finder, (EXPANDABLE,)), device)


def test_the_other_allocator_is_kept_where_more_fits() -> None:
    stop, history = search(TwoAllocators({"": 50, EXPANDABLE: 61}, fragmented=True))
    assert stop.answer is not None
    assert (stop.answer.max_batch, stop.answer.refuted_at) == (61, 62)
    assert stop.answer.settings == Settings(allocator=EXPANDABLE, accumulate=2)
    assert all(p.settings.accumulate == 2 for p in history)


@pytest.mark.parametrize("expandable", [50, 44])
def test_the_allocator_asked_for_is_kept_where_no_more_fits(expandable: int) -> None:
    stop, history = search(TwoAllocators({"": 50, EXPANDABLE: expandable}, fragmented=True))
    assert stop.answer is not None
    assert (stop.answer.max_batch, stop.answer.settings) == (50, Settings(accumulate=2))
    assert {p.settings.allocator for p in history} == {"", EXPANDABLE}


def test_nothing_else_is_tried_without_fragmentation() -> None:
    stop, history = search(TwoAllocators({"": 50, EXPANDABLE: 61}, fragmented=False))
    assert stop.answer is not None and stop.answer.max_batch == 50
    assert {p.settings.allocator for p in history} == {""}


def test_nothing_else_is_tried_where_a_bound_and_not_memory_ends_the_search() -> None:
    stop, history = search(TwoAllocators({"": 50, EXPANDABLE: 61}, fragmented=True), max_batch=40)
    assert stop.answer is not None and (stop.answer.max_batch, stop.answer.refuted_at) == (40, None)
    assert {p.settings.allocator for p in history} == {""}


def test_the_recommendation_is_made_under_the_allocator_that_won() -> None:
    device = TwoAllocators({"": 50, EXPANDABLE: 61}, fragmented=True)

    @dataclass
    class Timed:
        def probe(self, question: Question, budget: Budget, reserve_bytes: int) -> ProbeResult:
            answer = device.probe(question, budget, reserve_bytes)
            if not answer.fits:
                return answer
            seconds = 1.0 + question.batch_size / 1000
            return replace(answer, measurement=replace(answer.measurement, step_seconds=(seconds, seconds)))

    stop, history = drive(BestAllocator(BatchFinder(), (EXPANDABLE,)), Timed())
    assert stop.answer is not None
    assert stop.answer.max_batch == 61
    assert 0.98 * 61 <= stop.answer.recommended_batch <= 61  # throughput is nearly proportional to the batch
    recommending = [p for p in history if p.reason is Reason.RECOMMEND]
    assert all(p.settings.allocator == EXPANDABLE for p in recommending)


def test_the_same_history_gets_the_same_reply() -> None:
    device = TwoAllocators({"": 50, EXPANDABLE: 61}, fragmented=True)
    strategy = BestAllocator(BatchFinder(recommend=False), (EXPANDABLE,))
    _, history = drive(strategy, device)
    for end in range(len(history)):
        asked = strategy.ask(tuple(history[:end]))
        assert asked == device.asked[end]
