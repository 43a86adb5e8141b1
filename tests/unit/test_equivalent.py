"""What a comparison of candidate and reference means."""

from dataclasses import replace

import pytest

from autotune.model import (
    Cause,
    Checkpointing,
    Comparison,
    Failure,
    Measurement,
    MemoryFormat,
    OptimizerKind,
    Outcome,
    Precision,
    Settings,
)
from autotune.probe.equivalent import COARSE, FINE, MIDDLE, judge, of_candidate, tolerance

OWN = Settings()
SAME = Comparison(
    cosine=1.0,
    norm_ratio=1.0,
    loss_difference=0.0,
    losses=(2.5, 2.25, 2.0),
    reference_losses=(2.5, 2.25, 2.0),
)


def verdict(
    comparison: Comparison | None,
    candidate: Settings = OWN,
    reference: Settings = OWN,
    *,
    executed: int = 3,
    device: str = "cpu",
) -> tuple[Outcome, Failure] | None:
    """Of a comparison of three steps."""
    measurement = Measurement(steps_asked=3, steps_executed=executed, comparison=comparison)
    return judge(measurement, candidate=candidate, reference=reference, device=device)


def changed(comparison: Comparison, candidate: Settings = OWN, reference: Settings = OWN) -> Failure:
    """The failure of a candidate that trains something else."""
    found = verdict(comparison, candidate, reference)
    assert found is not None
    assert found[0] is Outcome.CHANGES_TRAINING
    return found[1]


def test_the_very_same_training_passes() -> None:
    assert verdict(SAME) is None


def test_a_comparison_that_never_ran_is_no_proof() -> None:
    found = verdict(None)
    assert found is not None
    assert (found[0], found[1].cause) == (Outcome.CRASHED, Cause.NO_ANSWER)


@pytest.mark.parametrize(
    ("candidate", "reference", "cpu", "cuda"),
    [
        (Precision.DEFAULT, Precision.DEFAULT, FINE, MIDDLE),  # convolutions are in tf32 there
        (Precision.FP32, Precision.FP32, FINE, FINE),
        (Precision.TF32, Precision.FP32, FINE, MIDDLE),  # CPUs have no tf32
        (Precision.FP16, Precision.FP32, MIDDLE, MIDDLE),
        (Precision.BF16, Precision.FP16, COARSE, COARSE),
        (Precision.BF16, Precision.BF16, COARSE, COARSE),  # both round, each in its own way
    ],
)
def test_the_coarser_number_format_decides_what_is_tolerated(
    candidate: Precision, reference: Precision, cpu: object, cuda: object
) -> None:
    for first, second in ((candidate, reference), (reference, candidate)):
        pair = Settings(precision=first), Settings(precision=second)
        assert tolerance(*pair, "cpu") is cpu
        assert tolerance(*pair, "cuda") is cuda


@pytest.mark.parametrize("precision", [Precision.DEFAULT, Precision.FP16, Precision.BF16])
def test_each_bound_is_held_exactly(precision: Precision) -> None:
    candidate = Settings(precision=precision)
    allowed = tolerance(candidate, OWN, "cpu")
    inside, outside = 0.99, 1.01
    for share, fails in ((inside, False), (outside, True)):
        for comparison, cause in (
            (replace(SAME, cosine=1 - share * allowed.direction), Cause.GRADIENTS_DIFFER),
            (replace(SAME, norm_ratio=1 + share * allowed.length), Cause.GRADIENTS_DIFFER),
            (replace(SAME, norm_ratio=1 - share * allowed.length), Cause.GRADIENTS_DIFFER),
            (replace(SAME, loss_difference=share * allowed.loss), Cause.LOSS_DIFFERS),
        ):
            found = verdict(comparison, candidate)
            assert (found is not None) is fails, comparison
            if found is not None:
                assert (found[0], found[1].cause) == (Outcome.CHANGES_TRAINING, cause)


def test_what_says_nothing_is_not_held_against_the_candidate() -> None:
    assert verdict(replace(SAME, cosine=None, norm_ratio=None, loss_difference=None)) is None


def test_c30_lost_gradients_are_named_three_of_them_and_counted() -> None:
    names = tuple(f"body.{number}.weight" for number in range(5))
    failure = changed(replace(SAME, lost=names), Settings(checkpointing=Checkpointing.OWN))
    assert failure.cause is Cause.GRADIENTS_LOST
    expected = (
        "parameters body.0.weight, body.1.weight, body.2.weight and 2 others get no gradient, and get one under the"
    )
    assert failure.message.startswith(expected)
    assert "--allow checkpointing=blocks" in failure.hint
    many = changed(replace(SAME, lost=tuple(f"p{number}" for number in range(20))))
    assert "and 17 or more others" in many.message
    assert changed(replace(SAME, lost=("bias",))).message.startswith(
        "parameter bias gets no gradient, and gets one under"
    )


def test_gained_gradients_change_training_as_well() -> None:
    failure = changed(replace(SAME, gained=("frozen.weight",)))
    assert failure.cause is Cause.GRADIENTS_LOST
    assert "frozen.weight gets a gradient, and gets none under the reference" in failure.message


def test_a_candidate_that_lost_every_gradient_took_no_step_for_that_reason() -> None:
    found = verdict(replace(SAME, lost=("weight",), cosine=None, losses=()), executed=0)
    assert found is not None
    assert found[1].cause is Cause.GRADIENTS_LOST


def test_c29_a_loss_that_is_not_finite_is_unstable_and_names_the_step_and_the_references_loss() -> None:
    found = verdict(replace(SAME, losses=(2.5, None)), Settings(precision=Precision.FP16), executed=1)
    assert found is not None
    outcome, failure = found
    assert (outcome, failure.cause, failure.step) == (Outcome.UNSTABLE, Cause.NON_FINITE, 2)
    assert "2.25" in failure.message
    assert "float32" in failure.hint


def test_c08_a_gradient_scaler_that_never_settles_is_unstable() -> None:
    found = verdict(
        replace(SAME, cosine=None, norm_ratio=None, loss_difference=None, losses=(), skipped=30),
        Settings(precision=Precision.FP16),
        executed=0,
    )
    assert found is not None
    outcome, failure = found
    assert (outcome, failure.cause) == (Outcome.UNSTABLE, Cause.STEPS_SKIPPED)
    assert "skipped 30 steps and took 0" in failure.message


def test_skipped_steps_before_the_scaler_settles_are_fine() -> None:
    assert verdict(replace(SAME, skipped=9), Settings(precision=Precision.FP16)) is None


def test_a_reference_that_is_not_finite_is_not_the_candidates_fault() -> None:
    found = verdict(Comparison(reference_losses=(2.5, None)), executed=0)
    assert found is not None
    outcome, failure = found
    assert (outcome, failure.cause, failure.step) == (Outcome.WORKLOAD_ERROR, Cause.NON_FINITE, 2)
    assert "the reference itself" in failure.message


def test_buffers_that_end_up_elsewhere_are_named() -> None:
    failure = changed(replace(SAME, buffers=("norm.running_mean",)))
    assert failure.cause is Cause.BUFFERS_DIFFER
    assert "buffer norm.running_mean ends up elsewhere" in failure.message


def test_what_comes_first_in_a_step_is_what_is_told() -> None:
    all_of_it = replace(SAME, loss_difference=1.0, cosine=0.0, buffers=("mean",), losses=(5.0, 9.0, 9.0))
    assert changed(all_of_it).cause is Cause.LOSS_DIFFERS
    assert changed(replace(all_of_it, loss_difference=0.0)).cause is Cause.GRADIENTS_DIFFER
    assert changed(replace(all_of_it, loss_difference=0.0, cosine=1.0)).cause is Cause.BUFFERS_DIFFER
    assert changed(replace(all_of_it, lost=("weight",))).cause is Cause.GRADIENTS_LOST


def test_a_loss_that_goes_another_way_later_is_told_by_its_step() -> None:
    failure = changed(replace(SAME, losses=(2.5, 2.25, 2.3)))
    assert (failure.cause, failure.step) == (Cause.LOSS_DIFFERS, 3)
    assert "2.3 in step 3, and 2 under the reference" in failure.message


def test_an_optimizer_that_takes_no_steps_is_seen_by_the_losses() -> None:
    assert changed(replace(SAME, losses=(2.5, 2.5, 2.5))).cause is Cause.LOSS_DIFFERS


def test_losses_that_part_as_much_as_rounding_and_the_optimizer_make_them_pass() -> None:
    measured = replace(SAME, losses=(2.69707, 2.81844, 2.75747), reference_losses=(2.6972, 2.84843, 2.75954))
    assert verdict(measured, Settings(precision=Precision.FP16)) is None  # AdamW at a learning rate of 0.03


def test_where_rounding_decides_the_gradient_only_a_worse_loss_than_any_of_the_reference_counts() -> None:
    chaotic = replace(SAME, norm_ratio=None, reference_losses=(0.888, 1.17, 2.36))  # a small network with batch norms
    bf16 = Settings(precision=Precision.BF16)
    assert verdict(replace(chaotic, losses=(0.889, 1.23, 0.577)), bf16) is None
    found = verdict(replace(chaotic, losses=(0.889, 1.23, 9.0)), bf16)
    assert found is not None
    assert found[1].step == 3
    steady = verdict(replace(chaotic, norm_ratio=1.0, losses=(0.889, 1.23, 0.577)), bf16)
    assert steady is not None
    assert steady[1].step == 3


def test_c33_whatever_differs_under_accumulation_says_that_it_is_not_equivalent() -> None:
    for comparison in (
        replace(SAME, loss_difference=0.5),
        replace(SAME, cosine=0.9),
        replace(SAME, buffers=("norm.running_mean",)),
    ):
        failure = changed(comparison, Settings(accumulate=4))
        assert failure.message.startswith("accumulation is not equivalent here: ")
        assert "--fix accumulate" in failure.hint
        assert "accumulation" not in changed(comparison, Settings(accumulate=4), Settings(accumulate=4)).message


def test_the_hint_says_which_settings_are_left_out() -> None:
    candidate = Settings(optimizer=OptimizerKind.FUSED, memory_format=MemoryFormat.CHANNELS_LAST)
    hint = changed(replace(SAME, cosine=0.5), candidate).hint
    assert "optimizer=fused, memory_format=channels_last" in hint


def test_an_error_of_the_candidate_alone_is_not_the_workloads() -> None:
    failure = Failure(cause=Cause.USER_CODE, message="mat1 and mat2 must have the same dtype")
    ran = Measurement(comparison=Comparison(reference_losses=(1.0, 1.0, 1.0)))
    outcome, told = of_candidate(Outcome.WORKLOAD_ERROR, failure, ran)
    assert (outcome, told.cause) == (Outcome.UNSUPPORTED, Cause.NOT_SUPPORTED)
    assert "must have the same dtype" in told.message
    assert of_candidate(Outcome.WORKLOAD_ERROR, failure, Measurement()) == (Outcome.WORKLOAD_ERROR, failure)
    memory = Failure(cause=Cause.DEVICE_MEMORY, message="CUDA out of memory")
    assert of_candidate(Outcome.OUT_OF_MEMORY, memory, ran) == (Outcome.OUT_OF_MEMORY, memory)
