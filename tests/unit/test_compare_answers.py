"""From what a comparing process sent to the outcome of the probe."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from autotune.model import (
    Cause,
    Comparison,
    Failure,
    Form,
    Measurement,
    Outcome,
    Precision,
    ProbeResult,
    Question,
    Reason,
    Settings,
)
from autotune.probe.answers import probe_result
from autotune.probe.ended import Answer
from autotune.probe.evidence import Raised
from autotune.units import GIB
from tests.cli.results import MACHINE
from tests.unit.classify_samples import ENDED

DISTURBED = Failure(cause=Cause.OTHERS, message="others took 5 GiB")
SAME = Comparison(
    cosine=1.0, norm_ratio=1.0, loss_difference=0.0, losses=(2.0, 1.5, 1.0), reference_losses=(2.0, 1.5, 1.0)
)
MEASURED = Measurement(steps_asked=3, steps_executed=3, comparison=SAME, losses=SAME.losses)


def raised(name: str, text: str) -> Raised:
    """An exception as a worker tells it."""
    return Raised(type=name, bases=(name, "builtins.RuntimeError"), text=text)


def result(
    measurement: Measurement, *, errors: tuple[Raised, ...] = (), disturbed: Failure | None = None
) -> ProbeResult:
    """The probe of bf16 against the user's own settings."""
    answer = Answer(kind="answer", measurement=measurement, raised=errors)
    ended = replace(ENDED, zygote=True, answer=answer)
    question = Question(
        batch_size=4,
        form=Form.COMPARE,
        reason=Reason.COMPARE,
        settings=Settings(precision=Precision.BF16),
        reference=Settings(),
    )
    nowhere = Path("/nonexistent")
    return probe_result(
        question,
        ended,
        machine=MACHINE,
        budget_bytes=GIB,
        started_at=datetime(2026, 1, 1, tzinfo=UTC),
        launcher="fork",
        stdout=nowhere,
        stderr=nowhere,
        disturbed=disturbed,
    )


def test_the_comparison_comes_through_as_it_was_sent() -> None:
    probe = result(MEASURED)
    assert probe.fits
    assert probe.failure is None
    assert probe.measurement.comparison == SAME


def test_what_differs_decides_the_outcome() -> None:
    probe = result(replace(MEASURED, comparison=replace(SAME, lost=("weight",))))
    assert probe.outcome is Outcome.CHANGES_TRAINING
    assert probe.failure is not None
    assert probe.failure.cause is Cause.GRADIENTS_LOST


@pytest.mark.parametrize(
    ("measurement", "outcome"),
    [
        (MEASURED, Outcome.FITS),
        (replace(MEASURED, comparison=replace(SAME, cosine=0.1)), Outcome.CHANGES_TRAINING),
        (replace(MEASURED, comparison=replace(SAME, losses=(None,))), Outcome.UNSTABLE),
    ],
)
def test_memory_that_others_took_does_not_spoil_a_comparison(measurement: Measurement, outcome: Outcome) -> None:
    assert result(measurement, disturbed=DISTURBED).outcome is outcome


def test_running_out_of_memory_while_comparing_is_that_and_unreliable_where_others_took_it() -> None:
    memory = (raised("torch.OutOfMemoryError", "CUDA out of memory. Tried to allocate 2.00 GiB"),)
    assert result(MEASURED, errors=memory).outcome is Outcome.OUT_OF_MEMORY
    assert result(MEASURED, errors=memory, disturbed=DISTURBED).outcome is Outcome.UNRELIABLE


def test_an_error_is_the_workloads_until_the_reference_is_through_and_the_candidates_after_it() -> None:
    error = (raised("builtins.RuntimeError", "mat1 and mat2 shapes cannot be multiplied"),)
    assert result(Measurement(steps_asked=3), errors=error).outcome is Outcome.WORKLOAD_ERROR
    through = Measurement(steps_asked=3, comparison=Comparison(reference_losses=SAME.reference_losses))
    probe = result(through, errors=error)
    assert probe.outcome is Outcome.UNSUPPORTED
    assert probe.failure is not None
    assert "mat1 and mat2" in probe.failure.message
