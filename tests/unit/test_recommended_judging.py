"""Which probes are a verdict on a recommendation, and which say nothing of it."""

import pytest

from autotune.errors import UsageError
from autotune.model import Cause, Evaluation, Outcome, ProbeResult, Settings
from autotune.recommended.judging import batch_of, claimed_answer, trouble, workload_failed
from autotune.report.document import document
from tests.cli.evaluated import NARROWER
from tests.cli.results import PLAN, RESULT, failing, fitting, with_settings


def test_the_recommended_batch_is_probed_unless_the_largest_is_asked_for() -> None:
    content = document(RESULT)
    assert (batch_of(content, "recommended"), batch_of(content, "max")) == (24, 27)
    with pytest.raises(UsageError, match="at 'largest' is not known"):
        batch_of(content, "largest")


def test_what_is_claimed_holds_for_the_files_settings_and_evaluation() -> None:
    settings = Settings(allocator="expandable_segments:True", accumulate=2)
    claimed = claimed_answer(document(with_settings(settings)), 24, PLAN)
    assert (claimed.max_batch, claimed.settings, claimed.evaluation) == (24, settings, None)
    evaluated = claimed_answer(document(NARROWER), 24, PLAN)
    assert evaluated.evaluation == NARROWER.answer.evaluation
    assert isinstance(evaluated.evaluation, Evaluation)


@pytest.mark.parametrize(
    ("outcome", "cause"),
    [
        (Outcome.OUT_OF_MEMORY, Cause.DEVICE_MEMORY),
        (Outcome.UNSAFE, Cause.GROWTH),
        (Outcome.UNSAFE, Cause.OVER_BUDGET),
        (Outcome.TIMED_OUT, Cause.TIMEOUT),
        (Outcome.UNSTABLE, Cause.NON_FINITE),
        (Outcome.CRASHED, Cause.SIGNAL),
        (Outcome.UNSUPPORTED, Cause.NOT_SUPPORTED),
        (Outcome.SIZE_LIMIT, Cause.DATA_SET),
    ],
)
def test_a_batch_that_is_not_safe_is_a_verdict(outcome: Outcome, cause: Cause) -> None:
    assert judged(failing(24, outcome, cause)) == (None, False)


def judged(probe: ProbeResult) -> tuple[str | None, bool]:
    found = trouble(probe)
    return found.message if found else None, workload_failed(probe)


@pytest.mark.parametrize("cause", [Cause.USER_CODE, Cause.USER_BUG, Cause.NO_STEPS])
def test_a_training_that_raises_is_none(cause: Cause) -> None:
    assert judged(failing(24, Outcome.WORKLOAD_ERROR, cause)) == (None, True)


@pytest.mark.parametrize(
    ("outcome", "cause"),
    [
        (Outcome.UNRELIABLE, Cause.OTHERS),
        (Outcome.CRASHED, Cause.ENVIRONMENT),
        (Outcome.WORKLOAD_ERROR, Cause.ENVIRONMENT),
    ],
)
def test_nor_is_a_machine_that_stands_in_the_way(outcome: Outcome, cause: Cause) -> None:
    probe = failing(24, outcome, cause, message="driver too old")
    assert judged(probe) == ("batch 24 cannot be judged: driver too old", False)


def test_a_fit_is_neither() -> None:
    assert judged(fitting(24)) == (None, False)
