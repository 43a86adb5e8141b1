"""Which finished probes are not safe."""

from dataclasses import replace

import pytest

from autotune.model import Cause, Form, Measurement, Outcome, Phase
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


def test_a_long_form_with_hardly_a_step_taken_is_unstable() -> None:
    assert verdict(replace(GOOD, steps_executed=3, steps_skipped=27)) == (Outcome.UNSTABLE, Cause.STEPS_SKIPPED)


def test_some_skipped_steps_are_fine_once_enough_were_taken() -> None:
    assert verdict(replace(GOOD, steps_executed=8, steps_skipped=9)) is None


def test_a_loss_that_is_not_finite_is_unstable() -> None:
    assert verdict(replace(GOOD, losses=(1.0, None, 1.0))) == (Outcome.UNSTABLE, Cause.NON_FINITE)


@pytest.mark.parametrize(
    ("form", "retries", "thrashes"),
    [
        (Form.LONG, (3, 2, 0, 0, 0, 0, 0, 0), False),  # ResNet-50 at 480 on an H200: warm-up only
        (Form.LONG, (3, 4, 2, 0, 0, 0, 0, 0), False),  # ... at 484
        (Form.LONG, (4, 3, 3, 4, 3, 1, 0, 0), True),  # ... at 485, where it is slower
        (Form.LONG, (0, 0, 0, 0, 0, 0, 0, 1), True),
        (Form.LONG, (1, 0, 1, 0, 1, 0, 1, 0), True),
        (Form.LONG, (3, 2, 1, 2, 1, 1, 1, 1) + (0,) * 22, False),  # went on, since its steps differ: warm-up only
        (Form.LONG, (0,) * 8 + (1,) + (0,) * 21, True),
        (Form.SHORT, (3, 2, 0, 0), False),
        (Form.SHORT, (2, 0, 1, 2, 0, 0), False),  # ... at 475
        (Form.SHORT, (4, 3, 3, 4, 3, 1), True),
        (Form.SHORT, (0, 1, 0), True),
    ],
)
def test_a_single_retry_in_the_last_steps_is_thrashing(form: Form, retries: tuple[int, ...], thrashes: bool) -> None:
    found = verdict(replace(GOOD, retries_per_step=retries), form=form)
    assert found == ((Outcome.UNSAFE, Cause.THRASHING) if thrashes else None)


def test_steps_that_the_scaler_skipped_do_not_count_among_the_eight() -> None:
    skipped = replace(GOOD, steps_skipped=5, retries_per_step=(0,) * 5 + (1,) * 4 + (0,) * 4)
    assert verdict(skipped) is None
    assert verdict(replace(skipped, steps_executed=25, retries_per_step=(0,) * 13 + (1,) + (0,) * 16)) is not None


def test_a_peak_above_the_budget_is_unsafe_and_one_at_it_is_not() -> None:
    assert verdict(GOOD, budget_bytes=300 * MIB) is None
    assert verdict(GOOD, budget_bytes=300 * MIB - 1) == (Outcome.UNSAFE, Cause.OVER_BUDGET)


@pytest.mark.parametrize(("device", "hint"), [("cpu", "fewer loader workers"), ("cuda", "outside PyTorch's allocator")])
def test_what_broke_the_budget_depends_on_the_device(device: str, hint: str) -> None:
    found = judge(GOOD, batch_size=4, form=Form.LONG, budget_bytes=MIB, device=device)
    assert found is not None and found[1].cause is Cause.OVER_BUDGET and hint in found[1].hint


GROWTHS = {
    "every step": (10, 20, 30, 40, 50, 60, 70, 80),
    "every second step": (10, 10, 20, 20, 30, 30, 40, 40),
    "unevenly": (10, 20, 50, 60, 90, 100, 130, 140),
    "with one step back": (10, 20, 30, 40, 39, 50, 60, 70),
}
STEADY = {
    "flat": (10, 40, 40, 40, 40, 40, 40, 40),
    "warm-up": (10, 20, 40, 40, 40, 40, 40, 40),
    "one jump in the middle": (10, 40, 40, 40, 55, 55, 55, 55),
    "varying": (10, 50, 20, 40, 41, 60, 30, 90),
    "noisy": (10, 40, 44, 40, 46, 47, 41, 48),
    "falling": (90, 80, 70, 60, 50, 40, 30, 20),
}


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("name", GROWTHS)
def test_growth_is_a_leak_however_it_comes(name: str, device: str) -> None:
    held = tuple(m * MIB for m in GROWTHS[name])
    assert verdict(replace(GOOD, allocated_after_step=held), device=device) == (Outcome.UNSAFE, Cause.GROWTH)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("name", STEADY)
def test_what_settles_or_varies_is_no_leak(name: str, device: str) -> None:
    held = tuple(m * MIB for m in STEADY[name])
    assert verdict(replace(GOOD, allocated_after_step=held), device=device) is None


def test_growth_is_judged_in_the_long_form_only() -> None:
    held = tuple(m * MIB for m in GROWTHS["every step"])
    assert verdict(replace(GOOD, allocated_after_step=held), form=Form.SHORT) is None


def test_rounding_is_no_leak_and_a_graph_a_step_is() -> None:
    blocks = tuple(100 * MIB + 512 * i for i in range(8))
    graphs = tuple(100 * MIB + 32 * 1024 * i for i in range(8))
    assert verdict(replace(GOOD, allocated_after_step=blocks)) is None
    assert verdict(replace(GOOD, allocated_after_step=graphs)) == (Outcome.UNSAFE, Cause.GROWTH)


def test_on_the_cpu_a_few_pages_of_noise_are_no_leak() -> None:
    pages = tuple(100 * MIB + 4096 * i for i in range(8))
    assert verdict(replace(GOOD, allocated_after_step=pages), device="cpu") is None


def test_a_leak_is_told_by_its_rate_and_by_the_step_at_which_memory_runs_out() -> None:
    held = (50 * MIB, *(100 * MIB + 10 * MIB * i for i in range(7)))
    leak = replace(GOOD, allocated_after_step=held, allocator_cap_bytes=300 * MIB)
    found = judge(leak, batch_size=4, form=Form.LONG, budget_bytes=300 * MIB, device="cuda")
    assert found is not None
    assert "grows by 10 MiB a step" in found[1].message and "a line explains 100% of it" in found[1].message
    assert "run out at about step 18" in found[1].message, "8 steps, and 100 MiB at 10 MiB a step"


def test_every_loss_kept_with_its_graph_is_a_leak_however_little_memory_that_is() -> None:
    assert verdict(replace(GOOD, graphs_kept=7)) == (Outcome.UNSAFE, Cause.GROWTH)
    assert verdict(replace(GOOD, graphs_kept=6)) is None, "a window of the last ones ends by itself"
    assert verdict(replace(GOOD, graphs_kept=7), form=Form.SHORT) is None


def test_the_step_after_an_evaluation_may_drop_what_that_left_cached() -> None:
    retried = replace(GOOD, retries_per_step=(2, 0, 0, 0, 1, 0, 0, 0))
    assert verdict(retried) == (Outcome.UNSAFE, Cause.THRASHING)
    assert verdict(replace(retried, evaluated_after=4)) is None
    again = replace(retried, retries_per_step=(2, 0, 0, 0, 1, 1, 0, 0), evaluated_after=4)
    assert verdict(again) == (Outcome.UNSAFE, Cause.THRASHING)


def test_too_few_samples_for_an_evaluation_are_its_own_limit() -> None:
    short = replace(GOOD, evaluated=True, evaluated_batch=6)
    found = judge(short, batch_size=4, form=Form.LONG, budget_bytes=300 * MIB, device="cuda", evaluate_at=8)
    assert found is not None
    outcome, failure = found
    assert (outcome, failure.cause, failure.phase) == (Outcome.SIZE_LIMIT, Cause.DATA_SET, Phase.EVALUATE)
    assert judge(short, batch_size=4, form=Form.LONG, budget_bytes=300 * MIB, device="cuda", evaluate_at=6) is None
