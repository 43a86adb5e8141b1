"""Three recorded steps made eight: as the same process would have gone on, evaluation in the middle included."""

from collections.abc import Sequence

import pytest

from autotune.memory.allocator_config import AllocatorConfig
from autotune.memory.long_run import LongRun, make_long
from autotune.model import Form, Mark, Phase, Trace
from autotune.units import KIB, MIB
from tests.unit.planted_device import Process
from tests.unit.planted_workloads import Request, Workload, network, with_more

DATA, FORWARD, EVALUATE = Phase.DATA, Phase.FORWARD, Phase.EVALUATE


def mark(position: int, step: int, phase: Phase = FORWARD) -> Mark:
    return Mark(position, phase, step, 4 if step else 0)


BUILT = Mark(0, Phase.BUILD, 0, 0)
# A weight; each step makes a gradient that the next one ends, and something short-lived.
EVENTS = (1, 2, 3, -3, 4, -2, 5, -5, 6, -4, 7, -7)
MARKS = (BUILT, mark(1, 1), mark(4, 2), mark(8, 3))


def lives(run: LongRun) -> list[tuple[int, int, int | None]]:
    """Of each allocation: whose repetition it is, and the events that make and end it."""
    made = {event: at for at, event in enumerate(run.events) if event > 0}
    ended = {-event: at for at, event in enumerate(run.events) if event < 0}
    assert sorted(made) == list(range(1, len(run.sources) + 1)), "numbered in the order they are made"
    assert set(ended) <= set(made)
    assert all(made[number] < at for number, at in ended.items())
    return [(run.sources[number - 1], at, ended.get(number)) for number, at in made.items()]


def test_as_many_steps_as_were_recorded_are_left_as_they_are() -> None:
    run = make_long(EVENTS, MARKS, 3, 1)
    assert (run.events, run.marks, run.sources, run.steps) == (EVENTS, MARKS, (0, 1, 2, 3, 4, 5, 6), 3)


def test_the_last_step_is_repeated_and_ends_what_its_repetition_made() -> None:
    run = make_long(EVENTS, MARKS, 5, 1)
    assert run.events == (*EVENTS, 8, -6, 9, -9, 10, -8, 11, -11)
    assert run.sources == (0, 1, 2, 3, 4, 5, 6, 5, 6, 5, 6)
    assert run.marks == (*MARKS, mark(12, 4), mark(16, 5))
    assert run.steps == 5


def test_all_phases_of_the_last_step_are_repeated_in_their_order() -> None:
    marks = (BUILT, mark(1, 1), mark(4, 2), mark(8, 3, DATA), mark(10, 3, FORWARD))
    run = make_long(EVENTS, marks, 4, 1)
    assert run.marks[-2:] == (mark(12, 4, DATA), mark(14, 4, FORWARD))


def test_what_happens_after_the_last_step_is_left_out() -> None:
    run = make_long((*EVENTS, -6), (*MARKS, mark(12, 3, Phase.EXIT)), 4, 1)
    assert run.events == (*EVENTS, 8, -6, 9, -9)
    assert run.marks == (*MARKS, mark(12, 4))


def test_an_evaluation_moves_to_the_middle_with_its_batch() -> None:
    events = (*EVENTS, 8, 9, -9)
    run = make_long(events, (*MARKS, mark(12, 3, DATA), mark(13, 3, EVALUATE)), 5, 4)
    assert [(one.step, one.phase) for one in run.marks] == [
        (0, Phase.BUILD),
        (1, FORWARD),
        (2, FORWARD),
        (3, FORWARD),
        (4, FORWARD),
        (4, DATA),
        (4, EVALUATE),
        (5, FORWARD),
    ]
    middle = run.marks[-3].position
    assert [run.sources[event - 1] for event in run.events[middle:] if event > 0] == [7, 8, 5, 6]


def test_the_batch_of_an_evaluation_belongs_to_it_and_goes_with_the_next_batch() -> None:
    # Each step makes a batch and ends the former one; the evaluation does so too.
    events = (1, 2, 3, -2, 4, -3, 5, -4)
    marks = (BUILT, mark(1, 1, DATA), mark(2, 2, DATA), mark(4, 3, DATA), mark(6, 3, DATA), mark(8, 3, EVALUATE))
    run = make_long(events, marks, 5, 4)
    assert run.sources == (0, 1, 2, 3, 3, 4, 3)
    assert run.events == (1, 2, 3, -2, 4, -3, 5, -4, 6, -5, 7, -6)


def test_what_is_older_than_the_step_before_is_ended_once() -> None:
    # 2 is left by the building: ended in the last step, or in the evaluation.
    marks = (BUILT, mark(2, 1), mark(3, 2), mark(5, 3))
    trains = make_long((1, 2, 3, 4, -3, 5, -4, -2), marks, 5, 1)
    assert trains.events == (1, 2, 3, 4, -3, 5, -4, -2, 6, -5, 7, -6)
    evaluates = make_long((1, 2, 3, 4, -3, 5, -4, 6, -6, -2), (*marks, mark(7, 3, EVALUATE)), 4, 4)
    assert evaluates.events == (1, 2, 3, 4, -3, 5, -4, 6, -5, 7, -7)


def test_a_last_phase_in_which_nothing_happens_is_kept() -> None:
    run = make_long(EVENTS, (*MARKS, mark(12, 3, Phase.OPTIMIZER)), 4, 1)
    assert run.marks[4:] == (mark(12, 3, Phase.OPTIMIZER), mark(12, 4), mark(16, 4, Phase.OPTIMIZER))


def test_an_evaluation_right_after_the_recorded_steps_stays() -> None:
    events = (*EVENTS, 8, 9, -9)
    run = make_long(events, (*MARKS, mark(12, 3, DATA), mark(13, 3, EVALUATE)), 5, 1)
    assert run.events[: len(events)] == events
    assert [one.phase for one in run.marks].index(EVALUATE) == 5
    assert run.events[len(events) :] == (10, -6, 11, -11, 12, -10, 13, -13)


@pytest.mark.parametrize(
    ("events", "marks", "steps"),
    [
        ((1, 2), (BUILT, mark(1, 1)), 1),
        ((1, 2, 3, 4), (BUILT, mark(1, 1), mark(2, 2)), 2),  # one allocation, then two
        ((1,), (BUILT,), 0),
    ],
)
def test_nothing_is_repeated_where_it_is_not_known_how(
    events: tuple[int, ...], marks: tuple[Mark, ...], steps: int
) -> None:
    run = make_long(events, marks, 8, 4)
    assert (run.events, run.marks, run.steps) == (events, marks, steps)
    assert run.sources == tuple(range(sum(event > 0 for event in events)))


# Against a process that really goes on


def trained(workload: Workload, form: Form) -> Trace:
    process = Process(workload, AllocatorConfig(), None)
    process.build()
    process.train(7, form)
    return process.trace()


def sizes_made_and_ended(sizes: Sequence[int], events: Sequence[int]) -> list[int]:
    return [sizes[event - 1] if event > 0 else -sizes[-event - 1] for event in events]


PLAIN = network(MIB, 3 * MIB, 2 * MIB)
CACHED = with_more(PLAIN, Request(born=Phase.FORWARD, constant=8 * MIB))
NO_STATE = network(MIB, 3 * MIB, 2 * MIB, states=0, batch=700 * KIB)


@pytest.mark.parametrize("evaluates", [False, True], ids=["trains", "evaluates"])
@pytest.mark.parametrize("workload", [PLAIN, CACHED, NO_STATE], ids=["plain", "library workspace", "no state"])
def test_it_is_what_the_long_form_does(workload: Workload, evaluates: bool) -> None:
    if evaluates:
        workload = (
            *workload,
            Request(born=EVALUATE, ended=EVALUATE, per_sample=4 * MIB),
            Request(born=EVALUATE, ended=EVALUATE, constant=MIB),
        )
    short, long = trained(workload, Form.SHORT), trained(workload, Form.LONG)
    run = make_long(short.events, short.marks, Form.LONG.steps, Form.LONG.steps // 2)
    assert run.steps == 8
    assert [(one.step, one.phase) for one in run.marks] == [(one.step, one.phase) for one in long.marks]
    assert [one.position for one in run.marks] == [one.position for one in long.marks]
    sizes = [short.sizes[source] for source in run.sources]
    assert sizes_made_and_ended(sizes, run.events) == sizes_made_and_ended(long.sizes, long.events)
    assert sum(one.phase is EVALUATE for one in run.marks) == evaluates
