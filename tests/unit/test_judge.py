"""Which finished probes are not safe."""

from dataclasses import replace

import pytest

from autotune.model import Cause, Form, Measurement, Outcome
from autotune.probe.judge import judge

MIB = 1 << 20
GOOD = Measurement(
    steps_asked=8,
    steps_executed=8,
    observed_batch=4,
    losses=(1.0,) * 8,
    retries_per_step=(2, 0, 0, 0, 0, 0, 0, 0),
    allocated_after_step=(50 * MIB, *(100 * MIB,) * 7),
    peak_allocated_bytes=200 * MIB,
    peak_device_bytes=300 * MIB,
)


def verdict(
    measurement: Measurement, *, form: Form = Form.LONG, budget_bytes: int = 300 * MIB, device: str = "cuda"
) -> tuple[Outcome, Cause] | None:
    found = judge(measurement, batch_size=4, form=form, budget_bytes=budget_bytes, device=device)
    return None if found is None else (found[0], found[1].cause)


def test_a_clean_measurement_is_safe() -> None:
    assert verdict(GOOD) is None


def test_a_batch_that_cannot_be_told_is_not_held_against_it() -> None:
    assert verdict(replace(GOOD, observed_batch=None)) is None


def test_fewer_samples_than_asked_are_a_data_set_limit() -> None:
    assert verdict(replace(GOOD, observed_batch=3)) == (Outcome.SIZE_LIMIT, Cause.DATA_SET)


def test_another_batch_dimension_is_an_error_of_the_workload() -> None:
    assert verdict(replace(GOOD, observed_batch=7)) == (Outcome.WORKLOAD_ERROR, Cause.USER_BUG)


def test_steps_that_did_nothing_never_fit() -> None:
    assert verdict(replace(GOOD, steps_executed=3)) == (Outcome.WORKLOAD_ERROR, Cause.NO_STEPS)
    assert verdict(Measurement()) is None, "nothing asked, nothing missing: the worker always asks"


def test_all_steps_skipped_by_the_scaler_is_unstable() -> None:
    assert verdict(replace(GOOD, steps_executed=0, steps_skipped=30)) == (Outcome.UNSTABLE, Cause.STEPS_SKIPPED)


def test_some_skipped_steps_are_fine_once_enough_were_taken() -> None:
    assert verdict(replace(GOOD, steps_executed=8, steps_skipped=9)) is None


def test_a_loss_that_is_not_finite_is_unstable() -> None:
    assert verdict(replace(GOOD, losses=(1.0, None, 1.0))) == (Outcome.UNSTABLE, Cause.NON_FINITE)


@pytest.mark.parametrize(
    ("retries", "expected"),
    [
        ((3, 2, 0, 0, 0, 0), None),  # ResNet-50 at 480 on an H200: warm-up only
        ((4, 3, 3, 4, 3, 1), Cause.THRASHING),  # ... at 485: in every step
        ((0, 0, 1, 2, 0, 0), None),
        ((0, 0, 0, 0, 0, 1), None),
        ((0, 1, 1), Cause.THRASHING),
    ],
)
def test_retries_count_in_the_last_two_steps(retries: tuple[int, ...], expected: Cause | None) -> None:
    found = verdict(replace(GOOD, retries_per_step=retries))
    assert found == (None if expected is None else (Outcome.UNSAFE, expected))


def test_a_peak_above_the_budget_is_unsafe_and_one_at_it_is_not() -> None:
    assert verdict(GOOD, budget_bytes=300 * MIB) is None
    assert verdict(GOOD, budget_bytes=300 * MIB - 1) == (Outcome.UNSAFE, Cause.OVER_BUDGET)


def test_steady_growth_is_a_leak_on_cuda_however_small() -> None:
    held = tuple(100 * MIB + 512 * i for i in range(8))
    assert verdict(replace(GOOD, allocated_after_step=held)) == (Outcome.UNSAFE, Cause.GROWTH)


def test_growth_is_judged_in_the_long_form_only() -> None:
    held = tuple(100 * MIB + 512 * i for i in range(8))
    assert verdict(replace(GOOD, allocated_after_step=held), form=Form.SHORT) is None


def test_warm_up_growth_and_varying_lengths_are_no_leak() -> None:
    warm_up = (10 * MIB, 20 * MIB, 30 * MIB, *(40 * MIB,) * 5)
    varying = tuple(m * MIB for m in (10, 50, 20, 40, 41, 60, 61, 90))
    assert verdict(replace(GOOD, allocated_after_step=warm_up)) is None
    assert verdict(replace(GOOD, allocated_after_step=varying)) is None


def test_on_the_cpu_a_few_pages_of_noise_are_no_leak_and_megabytes_are() -> None:
    pages = tuple(100 * MIB + 4096 * i for i in range(8))
    megabytes = tuple(100 * MIB + MIB * i for i in range(8))
    assert verdict(replace(GOOD, allocated_after_step=pages), device="cpu") is None
    assert verdict(replace(GOOD, allocated_after_step=megabytes), device="cpu") == (Outcome.UNSAFE, Cause.GROWTH)
