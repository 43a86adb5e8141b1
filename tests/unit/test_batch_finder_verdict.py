"""How a search without an answer is said to have ended, and confirming an answer from the ledger."""

import pytest

from autotune.model import Answer, Form, ProbeResult, Question, Reason, Settings, Stop
from autotune.search.confirm import ConfirmKnown
from autotune.search.verdict import Ending, why_nothing
from tests.fakes import (
    BROKEN_MACHINE,
    BUG,
    HANGS,
    KILLED,
    LEAKS,
    LIBRARY,
    NO_STEPS,
    NOT_FINITE,
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

KNOWN = Answer(max_batch=100, refuted_at=101, recommended_batch=64, limited_by="device_memory", step=1)
SETTINGS = Settings(accumulate=4)


@pytest.mark.parametrize(
    ("fault", "ending"),
    [
        (OUT_OF_MEMORY, Ending.NOTHING_FITS),
        (OVER_BUDGET, Ending.NOTHING_FITS),
        (ends_at(3), Ending.NOTHING_FITS),
        (HANGS, Ending.WORKLOAD),
        (LEAKS, Ending.WORKLOAD),
        (REJECTED, Ending.WORKLOAD),
        (BUG, Ending.WORKLOAD),
        (NOT_FINITE, Ending.WORKLOAD),
        (NO_STEPS, Ending.WORKLOAD),
        (SEGFAULT, Ending.WORKLOAD),
        (VANISHED, Ending.WORKLOAD),
        (LIBRARY, Ending.ENVIRONMENT),
        (KILLED, Ending.ENVIRONMENT),
        (BROKEN_MACHINE, Ending.ENVIRONMENT),
    ],
    ids=lambda value: value.cause if isinstance(value, Fault) else value,
)
def test_one_failure_at_the_smallest_size_names_the_ending(fault: Fault, ending: Ending) -> None:
    failure = result(1, fault=fault)
    assert why_nothing([failure]) == (ending, failure)


def verdict(*failures: tuple[int, Fault]) -> tuple[Ending, int]:
    kind, probe = why_nothing([result(size, fault=fault) for size, fault in failures])
    return kind, probe.batch_size


def test_out_of_memory_just_above_a_minimum_size_means_nothing_fits() -> None:
    assert verdict((1, REJECTED), (2, OUT_OF_MEMORY)) == (Ending.NOTHING_FITS, 2)


def test_rejections_at_many_sizes_below_an_out_of_memory_are_the_workload_s() -> None:
    failures = ((64, OUT_OF_MEMORY), (32, REJECTED), (1, REJECTED), (2, REJECTED), (4, REJECTED))
    assert verdict(*failures) == (Ending.WORKLOAD, 1)


def test_the_common_failure_is_shown_and_not_one_that_only_batch_one_has() -> None:
    batch_norm = Fault(outcome=REJECTED.outcome, cause=REJECTED.cause, error_type="builtins.ValueError")
    assert verdict((1, batch_norm), (2, REJECTED), (4, REJECTED)) == (Ending.WORKLOAD, 2)


def test_an_ambiguous_failure_is_memory_if_memory_failed_elsewhere() -> None:
    assert verdict((1, LIBRARY), (2, OUT_OF_MEMORY)) == (Ending.NOTHING_FITS, 2)


def test_a_history_without_a_failure_has_no_ending() -> None:
    with pytest.raises(ValueError, match="none of 1 probes failed"):
        why_nothing([result(1)])


def test_an_answer_that_fits_again_is_confirmed_by_one_long_probe() -> None:
    stop, history = drive(ConfirmKnown(KNOWN, SETTINGS), FakeProber())
    assert stop == Stop(reason="Batch 100 from the ledger fits again.", answer=KNOWN)
    assert [(p.batch_size, p.form, p.reason) for p in history] == [(100, Form.LONG, Reason.CONFIRM)]
    assert history[0].settings == SETTINGS


def test_an_answer_that_no_longer_fits_is_withdrawn() -> None:
    stop, history = drive(ConfirmKnown(KNOWN, SETTINGS), FakeProber(per_sample_bytes=11))
    assert stop.answer is None
    assert "batch 100 failed in its long form (device_memory)" in stop.reason
    assert len(history) == 1


@pytest.mark.parametrize(("fault", "times"), [(OVER_BUDGET, 2), (KILLED, 1), (VANISHED, 1)])
def test_a_confirmation_without_a_conclusion_is_asked_again(fault: Fault, times: int) -> None:
    stop, history = drive(
        ConfirmKnown(KNOWN, SETTINGS), FakeProber(fault=lambda _, __, n: fault if n < times else None)
    )
    assert stop.answer == KNOWN
    assert [p.reason for p in history] == [Reason.CONFIRM, *[Reason.RETRY] * times]
    assert {p.settings for p in history} == {SETTINGS}
    stop, history = drive(ConfirmKnown(KNOWN, SETTINGS), FakeProber(fault=lambda *_: fault))
    assert stop.answer is None
    assert len(history) == times + 1


def test_the_probes_of_the_earlier_search_confirm_nothing() -> None:
    earlier: list[ProbeResult] = [result(100), result(100, Form.LONG, reason=Reason.CERTIFY)]
    reply = ConfirmKnown(KNOWN, SETTINGS).ask(earlier)
    assert reply == Question(batch_size=100, form=Form.LONG, reason=Reason.CONFIRM, settings=SETTINGS)
