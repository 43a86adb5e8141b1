"""What a report shows: the answer against the user's own, the front, the sizes, the steps, and searches without an answer."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.model import Cause, Choice, Form, Outcome, Phase, Reason, SearchState, Settings
from autotune.report.page.build import build_view
from autotune.report.page.speed import MOST_TIMES, Roles, pareto, step_times
from autotune.report.page.view import Role, Trade, Verdict
from tests.cli.results import ANSWER, PROBES, RECORD, failing, fitting
from tests.unit.report_pages import BF16, RECORDING, many, phases, tuned, without_answer


def test_the_answer_stands_against_the_users_own_settings() -> None:
    answer = build_view(*tuned()).answer
    assert answer is not None
    assert (answer.batch_size, answer.effective, answer.changes) == (26, 26, {"precision": "bf16"})
    assert answer.samples_per_second == pytest.approx(26 / 0.085)
    assert answer.own_samples_per_second == pytest.approx(150)
    assert answer.own_batch == 27
    assert answer.speedup == pytest.approx(26 / 0.085 / 150)


def test_ones_own_settings_are_once_as_fast_as_themselves() -> None:
    answer = build_view(RECORD, PROBES).answer
    assert answer is not None
    assert (answer.changes, answer.speedup) == ({}, 1.0)
    assert answer.samples_per_second == answer.own_samples_per_second


def test_what_was_not_shown_is_said_as_a_doubt() -> None:
    held = {claim.text: claim.holds for claim in build_view(*tuned()).claims}
    assert held["The settings train the same as yours: compared on the same seeded steps, from the same weights."]
    assert not held["No larger batch is known to fail: no larger size was allowed."]
    assert not held["Evaluation: not probed."]
    record, probes = tuned()
    untold = build_view(record, [p for p in probes if p.form is not Form.COMPARE])
    assert ("Whether these settings train the same as yours was not compared.", False) in [
        (claim.text, claim.holds) for claim in untold.claims
    ]


def test_unsteady_times_are_a_doubt() -> None:
    shaky = replace(PROBES[6], measurement=replace(PROBES[6].measurement, step_seconds=(0.1, 0.2, 0.3, 0.4)))
    doubts = [c.text for c in build_view(RECORD, (*PROBES[:6], shaky)).claims if not c.holds]
    assert any("the speed is uncertain" in text for text in doubts)


def test_a_rejected_setting_is_no_rival_however_fast() -> None:
    view = build_view(*tuned())
    assert [(one.settings, one.batch_size) for one in view.trades if one.role is Role.REJECTED] == [
        ("precision=fp16", 24)
    ]
    assert all(one.role is not Role.REJECTED for one in view.trades if one.on_front)
    (lost,) = [one for one in view.tried if one.role is Role.REJECTED]
    assert lost.verdict == "rejected: trains something else: the gradients point elsewhere"


def test_why_the_others_lost_is_told_in_percent() -> None:
    (own,) = [one for one in build_view(*tuned()).tried if one.role is Role.YOURS]
    assert own.verdict == "51 % slower than recommended; certified"


points = st.builds(
    Trade,
    settings=st.just(""),
    role=st.sampled_from(Role),
    batch_size=st.integers(1, 64),
    peak_bytes=st.integers(1, 40),
    samples_per_second=st.integers(1, 40).map(float),
    on_front=st.just(False),
)


@given(st.lists(points, max_size=25))
def test_the_front_is_what_nothing_beats_in_memory_and_speed(found: list[Trade]) -> None:
    front, rivals = pareto(found), [one for one in found if one.role is not Role.REJECTED]

    def beats(a: Trade, b: Trade) -> bool:
        pairs = (a.peak_bytes, -a.samples_per_second), (b.peak_bytes, -b.samples_per_second)
        return pairs[0] != pairs[1] and all(x <= y for x, y in zip(*pairs, strict=True))

    assert all(one in rivals for one in front)
    assert not any(beats(rival, one) for one in front for rival in rivals)
    missing = [one for one in rivals if one not in front]
    reached = {(one.peak_bytes, one.samples_per_second) for one in front}
    assert all(
        any(beats(best, one) for best in front) or (one.peak_bytes, one.samples_per_second) in reached
        for one in missing
    )


def test_sizes_are_certified_refuted_or_only_ran() -> None:
    (memory,) = build_view(RECORD, PROBES).memory
    assert [(one.batch_size, one.verdict) for one in memory.marks] == [
        (4, Verdict.RAN),
        (16, Verdict.RAN),
        (24, Verdict.CERTIFIED),
        (27, Verdict.CERTIFIED),
        (28, Verdict.REFUTED),
        (32, Verdict.REFUTED),
    ]
    assert [one.batch_size for one in memory.parts] == [4, 16, 24, 27]


def test_the_kinds_of_memory_add_up_to_the_peak_of_the_device() -> None:
    (memory,) = build_view(RECORD, PROBES).memory
    peaks = {one.batch_size: one.peak_bytes for one in memory.marks}
    for parts in memory.parts:
        assert sum(parts.by_kind) == peaks[parts.batch_size]


def test_a_probe_that_others_disturbed_refutes_nothing() -> None:
    disturbed = failing(24, Outcome.UNRELIABLE, Cause.OTHERS, form=Form.LONG)
    view = build_view(RECORD, (*PROBES, disturbed))
    (mark,) = [one for one in view.memory[0].marks if one.batch_size == 24]
    assert mark.verdict is Verdict.CERTIFIED
    assert 24 in [one.batch_size for one in view.trades]


def test_memory_is_foretold_where_the_allocator_was_recorded_for_these_settings() -> None:
    record, probes = tuned()
    chosen, own = build_view(record, probes).memory
    assert (chosen.settings, chosen.foretold) == ("precision=bf16", False)
    assert own.foretold
    assert [one.batch_size for one in own.parts] == sorted({max(1, 32 * at // 11) for at in range(12)})
    totals = [sum(one.by_kind) for one in own.parts]
    assert totals == sorted(totals)


def test_the_step_is_foretold_at_the_answer_or_shown_as_recorded_for_others() -> None:
    step = build_view(RECORD, (RECORDING, *PROBES)).step
    assert step is not None and step.timeline is not None
    assert (step.timeline.batch_size, step.foretold) == (24, True)
    recorded = build_view(*tuned()).step
    assert recorded is not None and recorded.timeline is not None
    assert (recorded.timeline.batch_size, recorded.foretold, recorded.settings) == (3, False, "as you have it")
    assert recorded.phases_batch == 26


def test_without_a_recording_the_step_is_the_peaks_of_its_phases() -> None:
    step = build_view(RECORD, tuple(phases(probe) for probe in PROBES)).step
    assert step is not None and step.timeline is None
    assert [one.phase for one in step.phases] == [Phase.BUILD, Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER]
    assert build_view(RECORD, PROBES).step is None


def test_step_times_compare_settings_or_the_sizes_of_a_single_one() -> None:
    by_settings = build_view(*tuned()).times
    assert [(one.settings, one.batch_size, one.role) for one in by_settings] == [
        ("precision=fp16", 24, Role.REJECTED),
        ("precision=bf16", 26, Role.RECOMMENDED),
        ("as you have it", 27, Role.YOURS),
    ]
    by_size = build_view(RECORD, PROBES).times
    assert {one.batch_size for one in by_size} == {4, 16, 24, 27}


def test_of_too_many_step_times_the_answer_and_the_users_own_stay() -> None:
    slow = fitting(24, Form.LONG, step_seconds=(9.0, 9.0))
    probes = (*(fitting(size) for size in range(30, 60)), slow)
    rows = step_times(probes, Roles(probes, Settings(), Settings()), 24)
    assert len(rows) == MOST_TIMES
    assert rows[-1].batch_size == 24
    others = [replace(fitting(8), settings=replace(BF16, init_scale=2.0**power)) for power in range(20)]
    probes = (*others, slow, replace(slow, settings=BF16))
    rows = step_times(probes, Roles(probes, Settings(), BF16), 24)
    assert {Role.YOURS, Role.RECOMMENDED} <= {row.role for row in rows}


def test_nothing_fits_says_where_the_memory_went() -> None:
    view = without_answer((failing(1, phase=Phase.OPTIMIZER),))
    assert view.answer is None and view.no_answer is not None
    assert (view.no_answer.title, view.no_answer.at_batch) == ("Nothing fits", 1)
    assert {part.kind: part.size_bytes for part in view.no_answer.parts}["weights"] == 475 << 20
    assert view.no_answer.next_action
    assert view.claims == () and view.tried == ()


def test_a_workload_that_fails_shows_its_own_traceback() -> None:
    broken = failing(1, Outcome.WORKLOAD_ERROR, Cause.USER_BUG, message="no such layer", error_type="NameError")
    assert broken.failure is not None
    traceback = 'File "model.py", line 3'
    broken = replace(broken, failure=replace(broken.failure, traceback=traceback))
    ended = without_answer((broken,)).no_answer
    assert ended is not None
    assert (ended.title, ended.detail, ended.parts) == ("The workload fails", traceback, ())
    assert "no such layer" in ended.message


@pytest.mark.parametrize("count", [0, 1, 3])
def test_an_interrupted_search_says_how_to_go_on(count: int) -> None:
    view = without_answer(PROBES[:count], SearchState.INTERRUPTED, "stopped by KeyboardInterrupt")
    ended = view.no_answer
    assert ended is not None
    assert ended.title == "Interrupted"
    again = f" {count} finished probe{'' if count == 1 else 's'} will be used again." if count else ""
    assert ended.message == f"No answer yet: it was stopped.{again}"
    assert "to go on: autotune search model.py --memory-limit 40GiB" in ended.next_action
    assert "--fresh" not in ended.next_action
    assert len(view.probes) == count


def test_an_answer_that_did_not_stand_its_confirmation_is_not_called_a_search_in_which_nothing_fits() -> None:
    failed = replace(failing(27, form=Form.LONG), reason=Reason.CONFIRM)
    record = replace(RECORD, id="again", based_on="first", answer=None, state=SearchState.NO_ANSWER, message="gone")
    ended = build_view(record, (*PROBES, failed)).no_answer
    assert ended is not None
    assert (ended.title, ended.message, ended.parts) == ("No longer safe", "gone", ())


@pytest.mark.parametrize("count", [0, 2])
def test_a_search_that_ended_with_nothing_to_show_for_it_says_so(count: int) -> None:
    ended = without_answer(PROBES[:count]).no_answer
    assert ended is not None and ended.title == "No answer"


def test_a_size_that_failed_once_and_was_certified_then_is_drawn_as_certified() -> None:
    once = failing(27, Outcome.UNSAFE, Cause.OVER_BUDGET, form=Form.LONG)
    view = build_view(RECORD, (once, *PROBES))
    assert 27 in [one.batch_size for one in view.trades]
    assert 28 not in [one.batch_size for one in view.trades]


def test_accumulation_that_is_not_equivalent_does_not_reject_the_users_own_settings() -> None:
    apart = failing(4, Outcome.CHANGES_TRAINING, Cause.LOSS_DIFFERS, form=Form.COMPARE)
    apart = replace(apart, settings=Settings(accumulate=4))
    assert Roles((*PROBES, apart), Settings(), BF16).of(Settings()) is Role.YOURS


def test_a_failing_evaluation_leaves_the_speed_of_training_alone() -> None:
    failed = failing(27, phase=Phase.EVALUATE, form=Form.LONG)
    view = build_view(RECORD, (*PROBES[:5], failed, *PROBES[5:]))
    assert 27 in [one.batch_size for one in view.trades]


def test_a_search_that_still_runs_is_no_answer_yet() -> None:
    ended = without_answer((), SearchState.RUNNING).no_answer
    assert ended is not None and ended.title == "Not finished"


def test_an_answer_whose_probes_the_ledger_lost_is_shown_with_that_doubt() -> None:
    view = build_view(RECORD, PROBES[:3])
    assert view.answer is not None and view.answer.max_batch == 27
    assert view.answer.samples_per_second is None
    assert [claim.holds for claim in view.claims] == [False, False]
    assert "does not hold the probe" in view.claims[0].text


def test_choices_that_this_version_does_not_know_are_left_out() -> None:
    strange = (
        Choice(knob="warp", values=("9",)),
        Choice(knob="compile", values=()),
        Choice(knob="precision", values=("fp99",)),
    )
    view = build_view(replace(RECORD, plan=replace(RECORD.plan, space=strange)), PROBES)
    assert view.tried == () and "warp" not in view.reproduce


def test_of_thousands_of_probes_those_that_certify_and_the_newest_are_listed() -> None:
    record, probes = many(3000)
    view = build_view(record, probes)
    assert len(view.probes) + view.probes_left_out == len(probes)
    assert {p.number for p in view.probes if p.form == "long"} == {
        number for number, p in enumerate(probes, start=1) if p.form is Form.LONG
    }
    assert [p.number for p in view.probes] == sorted(p.number for p in view.probes)
    assert view.probes[-1].number == len(probes)
    (memory,) = view.memory
    assert len(memory.marks) <= 60 and memory.left_out == 3000 - len(memory.marks)
    assert {24, 28} <= {one.batch_size for one in memory.marks}


def test_failures_of_a_kind_are_told_once_with_their_probes() -> None:
    view = build_view(RECORD, PROBES)
    assert [(one.title, one.probes) for one in view.failures] == [
        ("out of memory in forward", (3,)),
        ("out of memory in backward, step 2", (5,)),
    ]
    again = build_view(RECORD, (*PROBES, failing(32), failing(33)))
    assert again.failures[0].probes == (3, 8, 9)


def test_an_endless_message_is_cut_in_its_middle() -> None:
    endless = failing(40, message="begin " + "x" * 100_000 + " end")
    (told,) = [one for one in build_view(RECORD, (*PROBES, endless)).failures if 8 in one.probes]
    assert len(told.text) < 6100
    assert "begin" in told.text and told.text.rstrip().endswith("end")


def test_a_confirmed_answer_is_shown_with_the_probes_it_rests_on() -> None:
    confirmed = replace(RECORD, id="again", based_on=RECORD.id, answer=ANSWER)
    view = build_view(confirmed, (*PROBES, fitting(27, Form.LONG, Reason.CONFIRM)))
    assert view.facts["Search"]["confirms"] == RECORD.id
    assert len(view.probes) == 8


def test_the_budget_is_told_with_where_it_comes_from() -> None:
    facts = build_view(RECORD, PROBES).facts["Memory budget"]
    assert facts == {"budget": "40 GiB", "set by": "--memory-limit", "device has": "140 GiB"}
