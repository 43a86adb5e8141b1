"""Which size is asked next between the largest that fits and the smallest that does not, given where a model expects the limit."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from autotune.model import Cause, Form, ProbeResult, Question, Reason
from autotune.search.bracket import Trust, bracket
from autotune.search.evidence import read
from autotune.search.guide import Guess, guess
from autotune.search.legal import legal_step
from autotune.search.narrow import narrow
from autotune.units import MIB
from tests.fakes import LIBRARY, OUT_OF_MEMORY, REJECTED, SEGFAULT, Fault, ends_at, result

SHORT, LONG = Form.SHORT, Form.LONG


def fits(size: int, form: Form = SHORT, reason: Reason = Reason.GROW) -> ProbeResult:
    return result(size, form, reason=reason)


def fails(size: int, form: Form = SHORT, reason: Reason = Reason.GROW) -> ProbeResult:
    return result(size, form, OUT_OF_MEMORY, reason=reason)


def following(
    history: Sequence[ProbeResult],
    expected: Guess | None = None,
    *,
    step: int = 1,
    bound: int = 1000,
    form: Form = SHORT,
) -> Question | None:
    evidence = read(history)
    found = bracket(evidence, step, bound)
    return narrow(evidence, history, found, expected, step=step, bound=bound, form=form)


def told(
    history: Sequence[ProbeResult],
    expected: Guess | None = None,
    *,
    step: int = 1,
    bound: int = 1000,
    form: Form = SHORT,
) -> tuple[int, Form, Reason]:
    asked = following(history, expected, step=step, bound=bound, form=form)
    assert asked is not None
    assert asked == Question(batch_size=asked.batch_size, form=asked.form, reason=asked.reason)
    return asked.batch_size, asked.form, asked.reason


def exact(size: int) -> Guess:
    """From a recording."""
    return Guess(size, certify=True)


def rough(size: int, *, wide: bool = False, spread: int = 1) -> Guess:
    """From a hull."""
    return Guess(size, certify=False, wide=wide, spread=spread)


RECORDED = fits(31, reason=Reason.TRACE)
PREDICTED = fits(101, LONG, Reason.PREDICTED)

# Without a model


def test_without_a_model_sizes_are_doubled_up_to_the_bound() -> None:
    assert told([fits(8)]) == (16, SHORT, Reason.GROW)
    assert told([fits(8)], bound=13) == (13, SHORT, Reason.GROW)
    assert following([fits(8)], bound=8) is None


def test_without_a_model_brackets_are_halved_until_nothing_lies_between() -> None:
    assert told([fits(8), fails(16)]) == (12, SHORT, Reason.BISECT)
    assert told([fits(8), fails(16)], step=4) == (12, SHORT, Reason.BISECT)
    assert told([fits(14), fails(17)]) == (15, SHORT, Reason.BISECT)
    assert following([fits(8), fails(9)]) is None
    assert following([fits(8), fails(12)], step=4) is None


def test_a_failure_far_above_says_nothing_of_the_limit_s_order_of_magnitude() -> None:
    assert told([fails(64), fits(16)]) == (32, SHORT, Reason.GROW)
    assert told([fails(64), fits(17)]) == (40, SHORT, Reason.BISECT)
    assert told([fails(64), fits(16, LONG)], form=LONG) == (40, LONG, Reason.BISECT)


def test_the_end_of_the_data_is_asked_for_by_its_size() -> None:
    history = [fits(64), result(128, fault=ends_at(100))]
    assert told(history, bound=100) == (100, SHORT, Reason.DATA_SET)
    assert told(history, exact(90), bound=100) == (100, SHORT, Reason.DATA_SET)


def test_legal_sizes_are_multiples_of_what_was_asked_for_whatever_else_explains_the_rejected_ones() -> None:
    """3 divides what ran and none of what was rejected, but is odd."""
    rejected = [result(size, fault=REJECTED) for size in (2, 4, 8)]
    assert legal_step(read([*rejected, fits(12)]), 2) == 6


@pytest.mark.parametrize(
    ("crashes", "bound", "trust"),
    [
        ([16], 16, Trust.SURE),
        ([16], 17, Trust.DOUBTFUL),
        ([16, 17], 1000, Trust.SURE),
        ([16, 18], 1000, Trust.DOUBTFUL),
        ([16, 32, 33], 1000, Trust.LIKELY),
        ([16, 32, 34], 1000, Trust.DOUBTFUL),
    ],
)
def test_a_crash_is_a_ceiling_where_the_next_size_crashes_or_is_out_of_bounds(
    crashes: list[int], bound: int, trust: Trust
) -> None:
    found = bracket(read([fits(8), *(result(size, fault=SEGFAULT) for size in crashes)]), 1, bound)
    assert found.high is not None
    assert (found.low, found.high.size, found.trust) == (8, 16, trust)


MASKED = replace(LIBRARY, cause=Cause.MASKED_MEMORY)


@pytest.mark.parametrize(
    ("fault", "trust"),
    [(MASKED, Trust.LIKELY), (LIBRARY, Trust.DOUBTFUL)],
    ids=lambda it: getattr(it, "cause", None),
)
def test_below_an_out_of_memory_only_one_that_was_masked_is_likely_a_ceiling(fault: Fault, trust: Trust) -> None:
    found = bracket(read([fits(8), result(16, fault=fault), fails(32)]), 1, 1000)
    assert found.high is not None
    assert (found.high.size, found.trust) == (16, trust)


@pytest.mark.parametrize(
    ("below", "above", "trust"),
    [
        (OUT_OF_MEMORY, [MASKED, OUT_OF_MEMORY], Trust.LIKELY),
        (REJECTED, [REJECTED] * 3, Trust.LIKELY),
        (SEGFAULT, [SEGFAULT] * 3, Trust.DOUBTFUL),
    ],
    ids=lambda it: getattr(it, "cause", None),
)
def test_of_failures_below_what_fits_only_those_that_no_smaller_size_explains_are_holes(
    below: Fault, above: list[Fault], trust: Trust
) -> None:
    failures = [result(size, fault=fault) for size, fault in zip((16, 32, 33), above, strict=False)]
    assert bracket(read([result(4, fault=below), fits(8), *failures]), 1, 1000).trust is trust


def test_a_failure_that_may_be_a_hole_is_told_by_its_neighbour() -> None:
    hole = result(16, fault=SEGFAULT)
    assert told([fits(8), hole]) == (17, SHORT, Reason.NEIGHBOUR)
    assert told([fits(8), hole], exact(12)) == (17, SHORT, Reason.NEIGHBOUR), "before any model is heard"
    assert told([fits(8), hole], step=4) == (20, SHORT, Reason.NEIGHBOUR)
    assert told([fits(15), hole]) == (17, SHORT, Reason.NEIGHBOUR)
    assert told([fits(8), result(31, fault=SEGFAULT)]) == (32, SHORT, Reason.NEIGHBOUR)
    assert told([fits(8), result(32, fault=SEGFAULT)]) == (16, SHORT, Reason.GROW), "it says nothing of the limit"


def test_a_ceiling_may_lie_between_two_legal_sizes_and_a_hole_may_not() -> None:
    highs = [bracket(read([fits(8), result(15, fault=fault)]), 4, 1000).high for fault in (OUT_OF_MEMORY, SEGFAULT)]
    assert [high and high.size for high in highs] == [15, None]


def test_once_the_short_form_misled_the_lower_end_is_certified_first() -> None:
    history = [fits(8), fits(16), fails(16, LONG)]
    assert told(history, exact(12), form=LONG) == (8, LONG, Reason.CERTIFY)
    assert told([*history, fits(8, LONG)], form=LONG) == (12, LONG, Reason.BISECT)


# With a recording


def test_the_limit_foretold_by_a_recording_is_certified_at_once() -> None:
    assert told([RECORDED], exact(101)) == (101, LONG, Reason.PREDICTED)
    assert told([RECORDED], exact(101), bound=60) == (60, LONG, Reason.PREDICTED)


def test_what_fits_as_foretold_is_followed_by_the_next_size() -> None:
    assert told([RECORDED, PREDICTED], exact(101)) == (102, LONG, Reason.REFUTE)
    assert told([fits(32), fits(96, LONG, Reason.PREDICTED)], exact(96), step=8) == (104, LONG, Reason.REFUTE)
    assert following([RECORDED, PREDICTED], exact(101), bound=101) is None
    assert following([RECORDED, PREDICTED, fails(102, LONG, Reason.REFUTE)], exact(101)) is None


def test_a_prediction_after_the_first_is_a_correction() -> None:
    assert told([RECORDED, PREDICTED], exact(109)) == (109, LONG, Reason.CORRECT)
    assert told([RECORDED, fails(101, LONG, Reason.PREDICTED)], exact(95)) == (95, LONG, Reason.CORRECT)


def test_a_correction_stays_below_what_failed() -> None:
    history = [RECORDED, fails(101, LONG, Reason.PREDICTED)]
    assert told(history, exact(200)) == (100, LONG, Reason.CORRECT)


def test_a_limit_foretold_at_what_fits_already_is_refuted_one_step_further() -> None:
    assert told([RECORDED], exact(31)) == (32, LONG, Reason.REFUTE)


def test_each_size_that_is_not_refuted_from_the_second_on_doubles_the_distance() -> None:
    history = [RECORDED, PREDICTED]
    asked = []
    for _ in range(6):
        size, _, reason = told(history, exact(history[-1].batch_size))
        assert reason is Reason.REFUTE
        asked.append(size)
        history.append(fits(size, LONG, Reason.REFUTE))
    assert asked == [102, 103, 105, 109, 117, 133]


def test_the_distance_doubles_only_for_sizes_in_a_row() -> None:
    history = [RECORDED, PREDICTED, *(fits(size, LONG, Reason.REFUTE) for size in (102, 103, 105))]
    corrected = fits(110, LONG, Reason.CORRECT)
    assert told([*history, corrected], exact(110)) == (111, LONG, Reason.REFUTE)


def test_a_bracket_that_two_probes_did_not_halve_is_halved_whatever_the_model_says() -> None:
    history = [RECORDED, fails(101, LONG, Reason.PREDICTED), fails(100, LONG, Reason.CORRECT)]
    assert told(history, exact(98)) == (98, LONG, Reason.CORRECT)
    history.append(fails(99, LONG, Reason.CORRECT))
    assert told(history, exact(98)) == (90, LONG, Reason.CORRECT), "three times as far below, once"
    history.append(fails(90, LONG, Reason.CORRECT))
    assert told(history, exact(89)) == (60, LONG, Reason.BISECT)
    history.append(fits(60, LONG, Reason.BISECT))
    assert told(history, exact(80)) == (80, LONG, Reason.CORRECT)


@pytest.mark.parametrize(
    ("failed", "expected"),
    [
        ((900, 899, 898), (889, Reason.CORRECT)),
        ((101, 80, 62), (61, Reason.CORRECT)),
        ((101, 90, 80), (55, Reason.BISECT)),
        ((40, 38, 37), (34, Reason.BISECT)),
    ],
)
def test_only_proposals_close_to_each_other_are_followed_by_one_well_below(
    failed: tuple[int, int, int], expected: tuple[int, Reason]
) -> None:
    """In the lower half there is nothing it would spare."""
    reasons = (Reason.PREDICTED, Reason.CORRECT, Reason.CORRECT)
    history = [RECORDED, *(fails(size, LONG, reason) for size, reason in zip(failed, reasons, strict=True))]
    size, _, reason = told(history, exact(failed[-1] - 1))
    assert (size, reason) == expected


def test_only_three_proposals_in_a_row_of_a_recording_lead_well_below() -> None:
    proposed = (fails(99, LONG, Reason.CORRECT), fails(98, LONG, Reason.CORRECT))
    assert told([RECORDED, fits(90, LONG, Reason.PREDICTED), *proposed], exact(97)) == (97, LONG, Reason.CORRECT)
    assert told([RECORDED, fails(100, LONG), *proposed], exact(97)) == (64, LONG, Reason.BISECT)
    of_a_hull = [fails(900, reason=Reason.PREDICTED), *(fails(size, reason=Reason.CORRECT) for size in (899, 898))]
    assert told([fits(31), *of_a_hull], rough(800)) == (62, SHORT, Reason.GROW)


def test_once_a_failure_corrected_the_model_the_gap_is_halved_instead_of_crept_up() -> None:
    history = [RECORDED, fails(101, LONG, Reason.PREDICTED), fits(90, LONG, Reason.CORRECT)]
    assert told(history, exact(90)) == (95, LONG, Reason.BISECT)
    assert told(history, exact(97)) == (97, LONG, Reason.CORRECT), "a model that has an opinion is heard"
    foretold = [RECORDED, fails(200), fits(90, LONG, Reason.PREDICTED)]
    assert told(foretold, exact(90)) == (91, LONG, Reason.REFUTE), "nothing corrected what was foretold"


def test_a_hull_is_believed_after_corrections_too() -> None:
    history = [fits(32), fails(101, reason=Reason.PREDICTED), fits(90, reason=Reason.CORRECT)]
    assert told(history, rough(90)) == (91, SHORT, Reason.REFUTE)


def doubtful(size: int, hoped: int) -> Guess:
    """From a recording in which some requests may be smaller or larger than likely."""
    return Guess(size, certify=True, hoped=hoped)


def test_what_is_sure_is_certified_before_what_is_hoped_for() -> None:
    assert told([RECORDED], doubtful(101, 109)) == (101, LONG, Reason.PREDICTED)


@pytest.mark.parametrize(("hoped", "size"), [(102, 102), (103, 103), (104, 103), (109, 106), (141, 122)])
def test_hope_is_followed_half_way(hoped: int, size: int) -> None:
    assert told([RECORDED, PREDICTED], doubtful(101, hoped)) == (size, LONG, Reason.CORRECT)


def test_hope_ends_below_what_failed_and_at_the_bound() -> None:
    failed = fails(104, LONG, Reason.CORRECT)
    assert told([RECORDED, PREDICTED, failed], doubtful(101, 200)) == (103, LONG, Reason.CORRECT)
    assert told([RECORDED, PREDICTED], doubtful(101, 200), bound=110) == (110, LONG, Reason.CORRECT)
    assert told([RECORDED, fits(96, LONG, Reason.PREDICTED)], doubtful(96, 120), step=8) == (112, LONG, Reason.CORRECT)


@pytest.mark.parametrize("hoped", [0, 90, 101])
def test_where_no_more_is_hoped_for_the_next_size_is_refuted(hoped: int) -> None:
    assert told([RECORDED, PREDICTED], doubtful(101, hoped)) == (102, LONG, Reason.REFUTE)


# With a hull


def test_the_limit_foretold_by_a_hull_is_tried_in_the_short_form() -> None:
    assert told([fits(4), fits(16)], rough(101)) == (101, SHORT, Reason.PREDICTED)
    assert told([fits(4), fits(16)], rough(64, wide=True)) == (64, SHORT, Reason.GROW)


def test_after_a_proposal_of_the_hull_failed_the_search_looks_right_below() -> None:
    history = [fits(32), fails(640, reason=Reason.PREDICTED)]
    assert told(history, rough(300)) == (631, SHORT, Reason.CORRECT)
    assert told(history, rough(300), step=4) == (632, SHORT, Reason.CORRECT)
    assert told([*history, fails(631, reason=Reason.CORRECT)], rough(300)) == (300, SHORT, Reason.CORRECT)
    assert told([fits(32), fails(640, reason=Reason.GROW)], rough(300)) == (300, SHORT, Reason.PREDICTED)
    close = [fits(500), fails(505, reason=Reason.PREDICTED)]
    assert told(close, rough(502)) == (501, SHORT, Reason.CORRECT), "never below what fits"
    assert told(close, rough(500, spread=10)) == (502, SHORT, Reason.BISECT), "nor within what noise hides"


def test_a_size_behind_a_foretold_hole_is_asked_once_nothing_is_left_below_it() -> None:
    behind = Guess(30, certify=True, beyond=33)
    history = [fits(29, LONG), fails(31, LONG)]
    assert told(history, behind) == (30, LONG, Reason.PREDICTED)
    assert told([*history, fits(30, LONG)], behind) == (33, LONG, Reason.NEIGHBOUR)


@pytest.mark.parametrize(("requested_bytes", "size"), [(100 * MIB, 59), (None, 40)])
def test_an_out_of_memory_that_says_what_it_needed_tells_the_limit(requested_bytes: int | None, size: int) -> None:
    """500 MiB were held and 100 more are too much, whatever the budget; without them all between 16 and 64 is possible."""
    ran = [result(size, need_bytes=10 * MIB * size, budget_bytes=1000 * MIB) for size in (8, 16)]
    died = result(64, fault=OUT_OF_MEMORY, need_bytes=500 * MIB, budget_bytes=1000 * MIB)
    assert died.failure is not None
    history = [*ran, replace(died, failure=replace(died.failure, requested_bytes=requested_bytes))]
    expected = guess(read(history), history, "", low=16, high=64, step=1, bound=1000, noise_bytes=0, varies=False)
    assert expected == rough(size)


def test_what_noise_hides_is_not_asked() -> None:
    history = [fits(32), fits(100, reason=Reason.PREDICTED)]
    assert told(history, rough(100, spread=5)) == (105, SHORT, Reason.REFUTE)
    assert told(history, rough(100, spread=5), step=4, bound=1000) == (108, SHORT, Reason.REFUTE)
    closed = [*history, fails(104, reason=Reason.REFUTE)]
    assert told(closed, rough(100, spread=5)) == (102, SHORT, Reason.BISECT)


@pytest.mark.parametrize("form", [SHORT, LONG])
def test_the_form_is_the_search_s_where_no_recording_is_trusted(form: Form) -> None:
    history = [fits(16, LONG), fails(24, LONG)]
    assert told(history, rough(20), form=form)[1] is form
    assert told(history, None, form=form)[1] is form
    assert told(history, exact(20), form=form)[1] is LONG
