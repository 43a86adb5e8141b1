"""Settings compared with the user's own in real probe processes: those that train something else are told by name."""

from collections.abc import Callable

import pytest

from autotune.model import (
    Budget,
    Cause,
    Checkpointing,
    Form,
    OptimizerKind,
    Outcome,
    Precision,
    ProbeResult,
    Question,
    Reason,
    Settings,
)
from autotune.units import GIB
from tests.process.conftest import Loaded

BUDGET = Budget(limit_bytes=4 * GIB, source="test", capacity_bytes=4 * GIB, others_bytes=0, headroom_bytes=0)
SWITCHED = Settings(checkpointing=Checkpointing.OWN)
BF16 = Settings(precision=Precision.BF16)

Compare = Callable[..., ProbeResult]


@pytest.fixture
def guard(loaded: Loaded) -> Callable[[str], Compare]:
    """``guard(KIND)`` gives ``compare(settings, reference)`` of guarded.py."""

    def launch(kind: str) -> Compare:
        launcher, _ = loaded("guarded.py", kind)

        def compare(settings: Settings, reference: Settings | None = None, batch_size: int = 4) -> ProbeResult:
            question = Question(
                batch_size=batch_size,
                form=Form.COMPARE,
                reason=Reason.COMPARE,
                settings=settings,
                reference=reference or Settings(),
            )
            return launcher.probe(question, BUDGET, 0)

        return compare

    return launch


def outcome(result: ProbeResult) -> tuple[Outcome, Cause | None]:
    """What a comparison ended in, and why."""
    return result.outcome, result.failure.cause if result.failure else None


FITS = Outcome.FITS, None


def test_settings_that_train_the_same_fit_and_show_what_was_compared(guard: Callable[[str], Compare]) -> None:
    compare = guard("blocks")
    result = compare(Settings(checkpointing=Checkpointing.BLOCKS))
    assert outcome(result) == FITS
    assert result.launcher == "fork"
    seen = result.measurement.comparison
    assert seen is not None
    assert seen.losses == seen.reference_losses
    assert (seen.cosine, len(seen.losses), result.measurement.steps_executed) == (1.0, 3, 3)
    assert result.measurement.losses == seen.losses
    for candidate in (BF16, Settings(optimizer=OptimizerKind.FUSED), Settings(accumulate=8)):
        assert outcome(compare(candidate)) == FITS, candidate
    assert outcome(compare(Settings(), BF16)) == FITS


def test_c30_the_models_own_reentrant_switch_is_rejected_by_the_parameters_that_lose_their_gradients(
    guard: Callable[[str], Compare],
) -> None:
    result = guard("blocks")(SWITCHED)
    assert outcome(result) == (Outcome.CHANGES_TRAINING, Cause.GRADIENTS_LOST)
    assert result.failure is not None
    assert "blocks.0.up.weight" in result.failure.message
    assert "and 9 others" in result.failure.message  # two blocks of six parameters


def test_c30_where_nothing_is_trained_any_more_the_search_is_told_and_not_ended(
    guard: Callable[[str], Compare],
) -> None:
    assert outcome(guard("headless")(SWITCHED)) == (Outcome.CHANGES_TRAINING, Cause.GRADIENTS_LOST)


def test_a_candidate_that_leaves_the_loss_without_a_gradient_is_not_supported_and_ends_nothing(loaded: Loaded) -> None:
    launcher, _ = loaded("guarded.py", "headless")
    own = Question(batch_size=4, form=Form.SHORT, reason=Reason.START)
    assert launcher.probe(own, BUDGET, 0).fits
    candidate = Question(batch_size=4, form=Form.TIMED, reason=Reason.CHANGE, settings=SWITCHED)
    refused = launcher.probe(candidate, BUDGET, 0)
    assert (refused.outcome, refused.failure and refused.failure.cause) == (Outcome.UNSUPPORTED, Cause.NOT_SUPPORTED)
    assert refused.failure is not None and "does not require a gradient" in refused.failure.message


def test_batch_norms_that_move_twice_a_step_are_rejected(guard: Callable[[str], Compare]) -> None:
    compare = guard("norm")
    result = compare(SWITCHED)
    assert outcome(result) == (Outcome.CHANGES_TRAINING, Cause.BUFFERS_DIFFER)
    assert outcome(compare(Settings(checkpointing=Checkpointing.BLOCKS))) == FITS


def test_c29_a_loss_that_is_not_finite_in_half_precision_is_unstable(guard: Callable[[str], Compare]) -> None:
    compare = guard("saturating")
    for precision in (Precision.FP16, Precision.BF16):
        assert outcome(compare(Settings(precision=precision))) == (Outcome.UNSTABLE, Cause.NON_FINITE)


@pytest.mark.parametrize(
    ("kind", "words"), [("mixing", "same scalar type"), ("no bf16", "only float32 is allowed here")]
)
def test_an_error_that_only_the_candidate_meets_makes_it_unsupported(
    guard: Callable[[str], Compare], kind: str, words: str
) -> None:
    compare = guard(kind)
    result = compare(BF16)
    assert outcome(result) == (Outcome.UNSUPPORTED, Cause.NOT_SUPPORTED)
    assert result.failure is not None
    assert words in result.failure.message
    assert outcome(compare(Settings(optimizer=OptimizerKind.FUSED))) == FITS


def test_c33_accumulation_that_is_not_equivalent_says_so(guard: Callable[[str], Compare]) -> None:
    result = guard("contrastive")(Settings(accumulate=2))
    assert result.outcome is Outcome.CHANGES_TRAINING
    assert result.failure is not None
    assert result.failure.message.startswith("accumulation is not equivalent here")
