"""The batch finder when probes fail for other reasons than size, contradict each other, or have to run again."""

from dataclasses import replace

import pytest

from autotune.model import Form, Phase, ProbeResult, Question, Reason, Stop
from autotune.search.batch import BatchFinder
from autotune.search.evidence import read
from autotune.search.verdict import Ending, why_nothing
from tests.fakes import (
    BROKEN_MACHINE,
    BUDGET,
    BUG,
    HANGS,
    KILLED,
    LEAKS,
    LIBRARY,
    NO_STEPS,
    OUT_OF_MEMORY,
    OVER_BUDGET,
    REJECTED,
    SEGFAULT,
    VANISHED,
    FakeProber,
    Fault,
    drive,
    ends_at,
    result,
)

FINDER = BatchFinder(recommend=False)


def asked(history: list[ProbeResult]) -> list[tuple[int, Form, Reason]]:
    return [(p.batch_size, p.form, p.reason) for p in history]


def showed(probe: ProbeResult, non_pytorch_bytes: int) -> ProbeResult:
    return replace(probe, measurement=replace(probe.measurement, non_pytorch_bytes=non_pytorch_bytes))


def in_long_form(fault: Fault) -> FakeProber:
    return FakeProber(fault=lambda _, form, __: fault if form is Form.LONG else None)


def test_over_budget_is_asked_again_twice_and_then_counts() -> None:
    prober = FakeProber(fault=lambda size, *_: OVER_BUDGET if size == 16 else None)
    stop, history = drive(FINDER, prober)
    at_16 = [p for p in history if p.batch_size == 16]
    assert [p.reason for p in at_16] == [Reason.GROW, Reason.RETRY, Reason.RETRY]
    assert stop.answer is not None
    assert (stop.answer.max_batch, stop.answer.refuted_at, stop.answer.limited_by) == (15, 16, "over_budget")


def test_over_budget_that_fits_under_the_corrected_cap_leaves_no_trace_in_the_answer() -> None:
    prober = FakeProber(fault=lambda size, _, attempt: OVER_BUDGET if size == 1 and attempt < 2 else None)
    stop, history = drive(FINDER, prober, replace(BUDGET, limit_bytes=10))
    assert [p.reason for p in history[:3]] == [Reason.START, Reason.RETRY, Reason.RETRY]
    assert stop.answer is not None and (stop.answer.max_batch, stop.answer.refuted_at) == (10, 11)


def test_over_budget_counts_at_once_if_its_cap_already_allowed_for_the_memory_outside_pytorch() -> None:
    small = showed(result(1), 100)
    again = FINDER.ask([small, showed(result(2, fault=OVER_BUDGET), 101)])
    assert again == Question(batch_size=2, form=Form.SHORT, reason=Reason.RETRY)
    counted = FINDER.ask([small, showed(result(2, fault=OVER_BUDGET), 100)])
    assert counted == Question(batch_size=1, form=Form.LONG, reason=Reason.CERTIFY)


@pytest.mark.parametrize("fault", [KILLED, VANISHED])
@pytest.mark.parametrize("form", [Form.SHORT, Form.LONG])
def test_a_probe_killed_or_vanished_for_no_known_reason_is_asked_again_once_in_the_same_form(
    fault: Fault, form: Form
) -> None:
    prober = FakeProber(fault=lambda size, f, attempt: fault if (size, f, attempt) == (10, form, 0) else None)
    stop, history = drive(FINDER, prober, replace(BUDGET, limit_bytes=10))
    first = next(i for i, p in enumerate(history) if not p.fits and p.batch_size == 10)
    assert asked(history)[first + 1] == (10, form, Reason.RETRY)
    assert stop.answer is not None and stop.answer.max_batch == 10


def test_growth_of_pages_once_is_noise_of_a_heap_next_to_the_limit_and_memory_limits_the_search() -> None:
    prober = FakeProber(fault=lambda size, f, attempt: LEAKS if (size, f, attempt) == (10, Form.LONG, 0) else None)
    stop, history = drive(FINDER, prober, replace(BUDGET, limit_bytes=10))
    assert (10, Form.LONG, Reason.RETRY) in asked(history)
    assert stop.answer is not None
    assert (stop.answer.max_batch, stop.answer.refuted_at, stop.answer.limited_by) == (10, 11, "device_memory")


def test_growth_of_pages_twice_in_the_same_probe_is_a_leak() -> None:
    prober = FakeProber(fault=lambda size, form, _: LEAKS if size == 10 and form is Form.LONG else None)
    stop, history = drive(FINDER, prober, replace(BUDGET, limit_bytes=10))
    assert [p.reason for p in history if p.batch_size == 10 and p.form is Form.LONG][1:] == [Reason.RETRY]
    assert stop.answer is not None
    assert (stop.answer.max_batch, stop.answer.refuted_at, stop.answer.limited_by) == (9, 10, "growth")


@pytest.mark.parametrize(("reserved", "graphs"), [(100, None), (None, 7)], ids=["tensors", "graphs"])
def test_growth_of_counted_tensors_or_graphs_is_a_leak_at_once(reserved: int | None, graphs: int | None) -> None:
    leak = result(2, Form.LONG, LEAKS)
    counted = replace(leak.measurement, peak_reserved_bytes=reserved, graphs_kept=graphs)
    reply = FINDER.ask([result(1), result(2), replace(leak, measurement=counted)])
    assert isinstance(reply, Question) and reply.reason is not Reason.RETRY


def test_a_segfault_counts_at_once() -> None:
    reply = FINDER.ask([result(1), result(2, fault=SEGFAULT)])
    assert isinstance(reply, Question) and reply.reason is not Reason.RETRY


@pytest.mark.parametrize("start", [None, 512])
@pytest.mark.parametrize(
    ("fault", "ending"), [(BUG, Ending.WORKLOAD), (BROKEN_MACHINE, Ending.ENVIRONMENT)], ids=["bug", "machine"]
)
def test_a_bug_or_a_broken_machine_ends_the_search_at_the_first_probe(
    fault: Fault, ending: Ending, start: int | None
) -> None:
    stop, history = drive(BatchFinder(start_batch=start), FakeProber(fault=lambda *_: fault))
    assert stop.answer is None
    assert len(history) == 1
    assert why_nothing(history) == (ending, history[0])


def test_an_error_before_the_first_batch_ends_the_search_at_the_first_probe() -> None:
    stop, history = drive(BatchFinder(), FakeProber(fault=lambda *_: replace(REJECTED, phase=Phase.BUILD)))
    assert stop.answer is None
    assert len(history) == 1


@pytest.mark.parametrize("fault", [OUT_OF_MEMORY, HANGS])
def test_a_model_that_cannot_be_built_is_tried_at_the_start_and_at_the_smallest_size_only(fault: Fault) -> None:
    prober = FakeProber(fault=lambda *_: replace(fault, phase=Phase.BUILD))
    stop, history = drive(BatchFinder(start_batch=4096), prober)
    assert stop.answer is None
    assert [p.batch_size for p in history] == [4096, 1]


@pytest.mark.parametrize(
    ("fault", "sizes"),
    [(REJECTED, [1, 2, 4, 8, 6, 16, 12, 64]), (SEGFAULT, [1, 2, 4, 8]), (NO_STEPS, [1, 2, 4, 8])],
    ids=["assertion", "segfault", "no steps"],
)
def test_a_workload_that_fails_at_every_size_is_tried_at_a_few(fault: Fault, sizes: list[int]) -> None:
    stop, history = drive(BatchFinder(), FakeProber(fault=lambda *_: fault))
    assert stop.answer is None
    assert [p.batch_size for p in history] == sizes
    assert why_nothing(history) == (Ending.WORKLOAD, history[0])


def test_a_machine_that_breaks_down_during_the_search_is_tried_once_more_and_then_ends_it() -> None:
    prober = FakeProber(fault=lambda size, *_: BROKEN_MACHINE if size > 20 else None)
    stop, history = drive(FINDER, prober, replace(BUDGET, limit_bytes=100))
    assert stop.answer is None
    assert history[-1].reason is Reason.RETRY
    assert [p.batch_size for p in history if not p.fits] == [history[-1].batch_size] * 2
    assert why_nothing(history).kind is Ending.ENVIRONMENT


def test_a_machine_that_stumbles_once_does_not_end_the_search() -> None:
    prober = FakeProber(fault=lambda size, _, attempt: BROKEN_MACHINE if size > 20 and attempt == 0 else None)
    stop, _ = drive(FINDER, prober, replace(BUDGET, limit_bytes=100))
    assert stop.answer is not None and stop.answer.max_batch == 100


@pytest.mark.parametrize(
    ("fault", "ending"),
    [(NO_STEPS, Ending.WORKLOAD), (REJECTED, Ending.WORKLOAD), (LEAKS, Ending.WORKLOAD), (LIBRARY, Ending.ENVIRONMENT)],
    ids=["no steps", "assertion", "leak", "library"],
)
def test_a_long_form_that_fails_everywhere_ends_the_search_after_three_sizes(fault: Fault, ending: Ending) -> None:
    stop, history = drive(FINDER, in_long_form(fault), replace(BUDGET, limit_bytes=1000))
    assert stop.answer is None
    long = {p.batch_size: p for p in history if p.form is Form.LONG}  # the newest of each size
    assert len(long) == 3
    assert list(long)[-1] == 1
    assert why_nothing(history) == (ending, long[1])


def test_a_certain_bug_in_the_long_form_ends_the_search_after_one_size() -> None:
    stop, history = drive(FINDER, in_long_form(BUG))
    assert stop.answer is None
    assert [p.form for p in history].count(Form.LONG) == 1


def test_a_long_form_that_never_fits_in_memory_gives_no_number() -> None:
    stop, history = drive(FINDER, in_long_form(OUT_OF_MEMORY))
    assert stop.answer is None
    assert why_nothing(history).kind is Ending.NOTHING_FITS
    assert (history[-1].batch_size, history[-1].form) == (1, Form.LONG)


def test_a_long_form_that_fails_for_one_cause_above_a_size_is_still_searched_to_the_end() -> None:
    """After three failures the smallest size gives firm ground, from which long probes bisect."""
    prober = FakeProber(fault=lambda size, form, _: NO_STEPS if form is Form.LONG and size > 20 else None)
    stop, history = drive(FINDER, prober)
    assert stop.answer is not None
    assert (stop.answer.max_batch, stop.answer.refuted_at, stop.answer.limited_by) == (20, 21, "no_steps")
    certified = next(i for i, p in enumerate(history) if p.form is Form.LONG and p.fits)
    assert history[certified].batch_size == 1
    assert all(p.reason in (Reason.BISECT, Reason.NEIGHBOUR) for p in history[certified + 1 :])


def test_a_long_form_that_fails_at_the_only_size_that_ran_is_tried_at_two_more() -> None:
    finder = BatchFinder(start_batch=64, max_batch=64)
    stop, history = drive(finder, in_long_form(NO_STEPS))
    assert stop.answer is None
    assert [(p.batch_size, p.form) for p in history[1:]] == [(64, Form.LONG), (1, Form.LONG), (2, Form.LONG)]


def test_masked_memory_near_the_limit_costs_a_neighbour_first_and_last_and_not_one_for_each_failure() -> None:
    masked = replace(LIBRARY, cause=LIBRARY.cause.MASKED_MEMORY)
    prober = FakeProber(fault=lambda size, *_: masked if 100 < size < 128 else None)
    stop, history = drive(FINDER, prober, replace(BUDGET, limit_bytes=127))
    assert stop.answer is not None and stop.answer.max_batch == 100
    assert len([p for p in history if not p.fits]) > 4
    assert [p.batch_size for p in history if p.reason is Reason.NEIGHBOUR] == [128, 102]


def test_a_failure_with_the_cause_of_a_sure_ceiling_is_believed_until_a_hole_has_that_cause() -> None:
    ceiling = [result(1), result(130, fault=SEGFAULT), result(131, fault=SEGFAULT), result(65)]
    suspect = result(97, fault=SEGFAULT)
    assert FINDER.ask([*ceiling, suspect]) == Question(batch_size=81, form=Form.SHORT, reason=Reason.BISECT)
    hole = result(64, fault=SEGFAULT)
    assert FINDER.ask([*ceiling, hole, suspect]) == Question(batch_size=98, form=Form.SHORT, reason=Reason.NEIGHBOUR)


# No size that fits


def test_a_search_that_ran_nothing_says_how_many_sizes_were_tried() -> None:
    one = BatchFinder(max_batch=1).ask([result(1, fault=REJECTED)])
    three = FINDER.ask([result(size, fault=LIBRARY) for size in (1, 2, 4)])
    assert [one, three] == [
        Stop(reason="No size ran among 1 size tried; batch 1 failed in its short form (user_code).", answer=None),
        Stop(reason="No size ran among 3 sizes tried; batch 1 failed in its short form (library_status).", answer=None),
    ]


def test_while_nothing_runs_sizes_are_multiples_as_well() -> None:
    replies = [
        BatchFinder(multiple_of=2).ask([it]) for it in (result(2, fault=REJECTED), result(16, fault=OUT_OF_MEMORY))
    ]
    assert replies == [
        Question(batch_size=4, form=Form.SHORT, reason=Reason.LEGAL_SIZE),
        Question(batch_size=8, form=Form.SHORT, reason=Reason.SHRINK),
    ]


def test_where_a_single_size_is_rejected_four_crashes_are_not_the_last_word() -> None:
    crashes = [result(1, fault=REJECTED), *(result(size, fault=SEGFAULT) for size in (2, 4, 8))]
    assert FINDER.ask(crashes) == Question(batch_size=6, form=Form.SHORT, reason=Reason.LEGAL_SIZE)


def test_a_fault_of_the_installation_is_believed_after_three_sizes_only_if_all_show_one() -> None:
    mixed = [*(result(size, fault=LIBRARY) for size in (1, 2)), result(4, fault=SEGFAULT)]
    assert FINDER.ask(mixed) == Question(batch_size=8, form=Form.SHORT, reason=Reason.LEGAL_SIZE)


def test_the_smallest_size_is_tried_where_the_data_set_ends_at_it() -> None:
    asked_next = BatchFinder(multiple_of=4).ask([result(8, fault=ends_at(4))])
    assert asked_next == Question(batch_size=4, form=Form.SHORT, reason=Reason.DATA_SET)


def test_only_a_recording_that_met_a_rejected_size_is_made_again_of_legal_ones() -> None:
    finder = BatchFinder(trace=True)
    again = finder.ask(
        [
            result(2, fault=REJECTED, reason=Reason.TRACE),
            result(3, fault=REJECTED),
            result(4),
            result(5, fault=REJECTED),
        ]
    )
    ran = finder.ask([result(2, reason=Reason.TRACE), result(3, fault=REJECTED), result(4)])
    assert isinstance(again, Question) and isinstance(ran, Question)
    assert (ran.batch_size, ran.reason) == (16, Reason.GROW)
    assert (again.batch_size, again.reason, again.trace_unit) == (8, Reason.TRACE, 4)


# What the history says


@pytest.mark.parametrize(
    ("history", "misled"),
    [
        ([result(8), result(8, Form.LONG, OUT_OF_MEMORY)], True),
        ([result(8), result(8, Form.LONG)], False),
        ([result(8, Form.LONG, OUT_OF_MEMORY)], False),
        ([result(8), result(8, fault=OUT_OF_MEMORY)], False),
    ],
)
def test_the_short_form_misled_where_it_fitted_and_the_long_form_failed(
    history: list[ProbeResult], misled: bool
) -> None:
    assert read(history).short_form_misled is misled


def test_the_data_end_below_no_size_that_got_its_samples() -> None:
    short = result(64, fault=ends_at(50))
    others: list[list[ProbeResult]] = [[], [result(128)], [result(128, fault=ends_at(40))]]
    assert [read([result(8), *more, short]).data_end for more in others] == [50, None, 40]


def test_accidents_of_different_kinds_each_have_their_second_chance() -> None:
    history = [result(1), result(8, fault=BROKEN_MACHINE), result(8, fault=VANISHED)]
    again = read(history).open
    assert again is not None and again.size == 8
    assert read([*history, result(8, fault=VANISHED)]).open is None
