from dataclasses import replace
from enum import Enum

import pytest

from autotune.model import Cause, Form, Outcome, Phase, Reason
from autotune.report.probes import failure_lines
from autotune.report.words import (
    CAUSES,
    FORMS,
    OUTCOMES,
    REASONS,
    failure_words,
    format_count,
    format_rate,
    format_share,
    limit_words,
)
from autotune.units import GIB
from tests.cli.results import failing, fitting


@pytest.mark.parametrize(
    ("words", "kind"),
    [(OUTCOMES, Outcome), (CAUSES, Cause), (REASONS, Reason), (FORMS, Form)],
    ids=lambda x: str(x)[:20],
)
def test_every_member_has_words_of_its_own(words: dict[Enum, str], kind: type[Enum]) -> None:
    assert set(words) == set(kind)
    assert all(words.values())
    assert len(set(words.values())) == len(words)


def test_a_safe_probe_is_said_to_fit() -> None:
    assert failure_words(fitting(4)) == "fits"


def test_memory_needs_no_explanation_but_a_place() -> None:
    assert failure_words(failing(8)) == "out of memory in forward"


def test_a_failure_after_the_first_step_names_the_step() -> None:
    assert failure_words(failing(8, phase=Phase.OPTIMIZER, step=2)) == "out of memory in optimizer, step 2"


def test_a_cause_that_the_outcome_does_not_tell_is_added() -> None:
    probe = failing(8, Outcome.UNSAFE, Cause.THRASHING, phase=None, step=None)
    assert failure_words(probe) == "unsafe (the allocator kept dropping its cache and retrying)"


def test_a_death_by_signal_names_the_signal() -> None:
    probe = failing(8, Outcome.CRASHED, Cause.SIGNAL, phase=None, step=None, signal="SIGSEGV")
    assert failure_words(probe) == "crashed (SIGSEGV)"


def test_an_exception_of_the_workload_is_named_without_its_module() -> None:
    probe = failing(3, Outcome.WORKLOAD_ERROR, Cause.USER_CODE, error_type="builtins.AssertionError")
    assert failure_words(probe) == "workload error in forward (AssertionError)"


def test_a_failure_without_details_is_its_outcome() -> None:
    assert failure_words(replace(failing(3), failure=None)) == "out of memory"


@pytest.mark.parametrize(
    ("limited_by", "words"),
    [
        ("max_batch", "no larger size was allowed"),
        ("data_set", "the data set has no more samples"),
        ("timeout", "the time limit of one probe passed"),
        ("something_new", "something new"),
    ],
)
def test_what_limits_the_answer_is_put_in_words(limited_by: str, words: str) -> None:
    assert limit_words(limited_by) == words


@pytest.mark.parametrize(
    ("rate", "text"), [(None, "-"), (0.5231, "0.523"), (47.34, "47.3"), (151.6, "152"), (26_734.0, "26,734")]
)
def test_rates_are_never_written_in_powers_of_ten(rate: float | None, text: str) -> None:
    assert format_rate(rate) == text


@pytest.mark.parametrize(
    ("count", "text"), [(312, "312"), (2048, "2.048 k"), (124_439_808, "124.4 M"), (7 * 10**9, "7 G")]
)
def test_counts_are_short(count: int, text: str) -> None:
    assert format_count(count) == text


def test_a_peak_is_shown_against_its_budget() -> None:
    assert format_share(30 * GIB, 40 * GIB) == "30 GiB of 40 GiB (75 %)"


def test_a_peak_that_was_not_measured_is_a_dash() -> None:
    assert format_share(None, 40 * GIB) == "-"


def test_a_budget_of_nothing_has_no_percentage() -> None:
    assert format_share(30, 0) == "30 B of 0 B"


def test_a_failure_is_told_without_the_module_of_built_in_exceptions_and_without_an_exit_code_of_zero() -> None:
    failed = failing(3, Outcome.OUT_OF_MEMORY, error_type="builtins.RuntimeError")
    assert failed.failure is not None
    told = failure_lines(replace(failed, failure=replace(failed.failure, message="no room", exit_code=0)))
    assert "  RuntimeError: no room" in told and not [line for line in told if "exit code" in line]
    killed = failure_lines(replace(failed, failure=replace(failed.failure, exit_code=3)))
    assert "  exit code 3" in killed
