"""Was a probe that ran to its end also safe? Pure: a measurement in, a failure or None out. DESIGN: what "safe" means."""

from autotune.diagnose.growth import Growth, growth_of
from autotune.model import Cause, Failure, Form, Measurement, Outcome, Phase
from autotune.units import KIB, MIB, format_bytes

GROWTH_STEPS = 7
"""Memory is compared over so many steps after warm-up (the first step) at least."""
GROWTH_LEAST_BYTES = 192 * KIB
"""CUDA, where tensors are counted: growth below this from the first to the last of them is rounding, no leak worth the
name."""
GROWTH_LEAST_CPU_BYTES = 3 * MIB
GROWTH_SHARE_CPU = 0.006
"""On the CPU, where pages are counted: at least 3 MiB and this share of the peak."""


def judge(
    measurement: Measurement,
    *,
    batch_size: int,
    form: Form,
    budget_bytes: int,
    device: str,
    evaluate_at: int | None = None,
) -> tuple[Outcome, Failure] | None:
    """Return None if the measurement is that of a safe batch, else what is wrong with it.

    ``evaluate_at``: as in ``Question``.
    """
    return (
        _not_as_told(measurement, batch_size)
        or _wrong_batch(_samples(measurement, batch_size), batch_size, Phase.DATA)
        or _wrong_batch(measurement.evaluated_batch, batch_size if evaluate_at is None else evaluate_at, Phase.EVALUATE)
        or _too_few_steps(measurement)
        or _not_finite(measurement)
        or _thrashes(measurement, form)
        or _over_budget(measurement, budget_bytes, device)
        or (_grows(measurement, device) if form is Form.LONG else None)
    )


def _samples(measurement: Measurement, asked: int) -> int | None:
    """In a batch; what the data set has where its loader gave none, since it drops what is no whole batch."""
    seen, samples = measurement.observed_batch, measurement.data_set_size
    if seen is None and samples is not None and samples < asked and not measurement.steps_executed:
        return samples
    return seen


def _not_as_told(measurement: Measurement, asked: int) -> tuple[Outcome, Failure] | None:
    """A command that trains on another batch than it was told, though its data set has enough samples."""
    seen, samples = measurement.observed_batch, measurement.data_set_size
    if measurement.micro_batches is None or seen is None or seen == asked:
        return None
    if seen < asked and samples is not None and samples <= seen:
        return None
    return Outcome.WORKLOAD_ERROR, Failure(
        cause=Cause.USER_BUG,
        phase=Phase.DATA,
        message=f"the command was told a batch of {asked} and trains on {seen}: it does not do what it was told",
        hint="look at how its option is spelt, and whether a file of options overrides it;"
        " {batch} is the batch of one device in one forward pass",
    )


def _wrong_batch(seen: int | None, asked: int, phase: Phase) -> tuple[Outcome, Failure] | None:
    if seen is None or seen == asked:
        return None
    if seen < asked:
        return Outcome.SIZE_LIMIT, Failure(
            cause=Cause.DATA_SET,
            phase=phase,
            message=f"asked for a batch of {asked} and got {seen}: the data has no more samples for one batch",
            hint="the largest batch cannot exceed the data set; give more data or accept this limit",
        )
    return Outcome.WORKLOAD_ERROR, Failure(
        cause=Cause.USER_BUG,
        phase=phase,
        message=f"asked for a batch of {asked} and got one whose leading dimension is {seen}",
        hint="let make_batch(batch_size) return exactly batch_size samples in the first dimension, or say which dimension "
        "counts them: `batch_dim = 1` beside make_batch; where none does, write make_loader(batch_size) instead",
    )


def _too_few_steps(measurement: Measurement) -> tuple[Outcome, Failure] | None:
    executed, skipped, asked = measurement.steps_executed, measurement.steps_skipped, measurement.steps_asked
    if executed >= asked:
        return None
    if skipped and executed < max(2, asked // 2):
        return Outcome.UNSTABLE, Failure(
            cause=Cause.STEPS_SKIPPED,
            phase=Phase.OPTIMIZER,
            message=f"the gradient scaler skipped {skipped} of {skipped + executed} steps: gradients are not finite",
            hint="try --precision bf16, or a loss that does not overflow in fp16",
        )
    if skipped:
        return None
    if measurement.micro_batches is not None and not executed:
        return Outcome.WORKLOAD_ERROR, Failure(
            cause=Cause.NO_STEPS,
            message="the command ended by itself without a single optimizer step",
            hint="look at its output; it may find no data, go on from a finished training, or skip steps that overflow",
        )
    if measurement.micro_batches is not None:
        return Outcome.SIZE_LIMIT, Failure(
            cause=Cause.NO_STEPS,
            message=f"the command ended by itself after {executed} of {asked} optimizer steps",
            hint="have it train longer for the search: more steps or epochs, or more data",
        )
    return Outcome.WORKLOAD_ERROR, Failure(
        cause=Cause.NO_STEPS,
        phase=Phase.FORWARD,
        message=f"{executed} of {asked} training steps really ran forward, backward and optimizer; the others did nothing",
        hint="look for an early return or a step counter in loss(); training would stand still as well",
    )


def _not_finite(measurement: Measurement) -> tuple[Outcome, Failure] | None:
    bad = [number for number, loss in enumerate(measurement.losses, 1) if loss is None]
    if not bad:
        return None
    return Outcome.UNSTABLE, Failure(
        cause=Cause.NON_FINITE,
        phase=Phase.FORWARD,
        step=bad[0],
        message=f"the loss is not finite in step {bad[0]} of {len(measurement.losses)}",
        hint="a size or precision whose loss overflows is never recommended; check the loss at this batch size",
    )


def _thrashes(measurement: Measurement, form: Form) -> tuple[Outcome, Failure] | None:
    # What an evaluation leaves cached is dropped in the step after it, once; that is no steady state yet.
    first = max(0, len(measurement.retries_per_step) - form.steady_steps)
    if (
        form is Form.LONG
    ):  # it goes on where steps differ in memory, and then all that follow the eight are to be steady
        first = min(first, measurement.steps_skipped + form.steps)
    last = [n for i, n in enumerate(measurement.retries_per_step) if i >= first and i != measurement.evaluated_after]
    if not any(last):
        return None
    return Outcome.UNSAFE, Failure(
        cause=Cause.THRASHING,
        message=f"the allocator still emptied its cache and retried in the last {len(last)} of"
        f" {len(measurement.retries_per_step)} steps ({sum(last)} times)",
        hint="every retry slows the step and is the step before out-of-memory; a smaller batch does not retry",
    )


def _over_budget(measurement: Measurement, budget_bytes: int, device: str) -> tuple[Outcome, Failure] | None:
    peak = measurement.peak_device_bytes
    if peak is None or peak <= budget_bytes:
        return None
    return Outcome.UNSAFE, Failure(
        cause=Cause.OVER_BUDGET,
        message=f"peak {format_bytes(peak)} is above the budget of {format_bytes(budget_bytes)}",
        hint="memory outside PyTorch's allocator grew during the probe"
        if device != "cpu"
        else "processes that the training starts count as well: use fewer loader workers, or a smaller batch",
    )


def _grows(measurement: Measurement, device: str) -> tuple[Outcome, Failure] | None:
    """A leak goes on to the end (``diagnose.growth``); a single jump, such as what an evaluation leaves in caches, does
    not. A leak that shows only every fourth step or more seldom is not seen in eight steps."""
    held = list(enumerate(measurement.allocated_after_step, 1))[1:]
    if len(held) < GROWTH_STEPS:
        return None
    least = GROWTH_LEAST_BYTES
    if device == "cpu":
        least = max(GROWTH_LEAST_CPU_BYTES, int(GROWTH_SHARE_CPU * (measurement.peak_allocated_bytes or 0)))
    grows = growth_of(held, least)
    kept = measurement.graphs_kept or 0
    if not grows and kept < measurement.steps_executed - 1:
        return None
    message = _rate(measurement, grows) if grows else "little memory is kept of every step"
    hint = "something keeps every step alive: look for lists and caches that are never emptied"
    if kept:
        message += f"; {kept} losses of earlier steps are still there, each with its autograd graph"
        hint = "detach what is kept from step to step: losses.append(loss.item()) or .detach(), not the loss itself"
    return Outcome.UNSAFE, Failure(cause=Cause.GROWTH, message=message, hint=hint)


def _rate(measurement: Measurement, growth: Growth) -> str:
    """How fast memory grows, how evenly, and when it would run out."""
    rate = growth.bytes_per_step
    text = f"memory grows by {format_bytes(round(rate))} a step after warm-up (a line explains {growth.fit:.0%} of it)"
    cap, peak = measurement.allocator_cap_bytes, measurement.peak_reserved_bytes or measurement.peak_allocated_bytes
    if cap is None or peak is None:
        return text
    return f"{text} and would run out at about step {measurement.steps_executed + max(0, cap - peak) / rate:,.0f}"
