"""Do candidate settings train the same as the reference? Pure: a comparison in, a failure or None out.

How far two runs of the same mathematics may be apart depends on how numbers are rounded, and on the workload: bf16 turns
the gradient of an untrained network of ResNet-50's layout by 85 degrees, and that of a transformer by one. So what
rounding alone turns is left out of the comparison (``autotune.probe.compare`` measures it), and the rest is held against
fixed bounds.

They stand two to ten times above what was measured on the CPU, with batches of 4 and 16, SGD and AdamW, several seeds, on
convolutions with batch norm (C, 7 layers), without skips (P, 8 layers), bottlenecks as ResNet-50's (R, 50 layers) and
transformers (T, 4 to 16 layers). The direction is that of all parameters, as 1 - cosine:

              direction                length          first loss
fp32*         C 3e-6 P 1e-5 R 6e-4     all 0.1 %       all 6e-6         * in another memory format
fp16          C 4e-4 P 3e-3 T 7e-5     all 0.2 %       all 1e-4
bf16          C 3e-3 P 2e-2 T 3e-4     all 0.6 %, R 6 %   all 1e-3, R 2.5e-2
"""

from dataclasses import dataclass, replace

from autotune.model import Cause, Comparison, Failure, Measurement, Outcome, Phase, Precision, Settings

_NAMED = 3
"""Parameters and buffers that a message names."""
MOST_NAMES = 20
"""Parameters that a comparison names."""
LATER = 4
"""Losses after the first may be this many times as far apart: the steps between amplify rounding."""
MOVEMENT = 0.5
"""... and by this share of how far the reference's own loss moves: Adam's first steps have one length for every
parameter, however small its gradient, so that rounding alone turns some around. At a learning rate of 0.03 bf16 is off
by 0.8 of the movement of a loss that moves little, and by 9 % of the loss. A run that takes no steps is off by all of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """How far apart two runs may be for their number formats alone."""

    rounding: float
    """Relative change that stands for the format: twice the largest error of rounding to it. Training in bf16 turns the
    gradient 0.3 to 2.6 times as far as weights do that change at random by up to this, and mostly 0.6 to 1.6 times."""
    direction: float
    """Largest 1 - cosine between the gradients."""
    length: float
    """Largest difference of the gradients' lengths, as a share."""
    loss: float
    """Largest difference of the first losses, as a share."""


FINE = Tolerance(rounding=2.0**-23, direction=1e-3, length=0.02, loss=1e-3)
"""fp32: only sums in another order."""
MIDDLE = Tolerance(rounding=2.0**-10, direction=1e-2, length=0.05, loss=0.01)
"""tf32 and fp16, which both keep 11 significant bits."""
COARSE = Tolerance(rounding=2.0**-8, direction=5e-2, length=0.15, loss=0.05)
"""bf16, which keeps 8."""

STEADY_SHARE = 0.25
"""A parameter's gradient is compared if rounding alone turns it by no more than this share of what is tolerated."""
COMPARED_SHARE = 0.5
"""... and length and loss, if it moves them by no more than this."""
BUFFER_SHARE = 0.05
"""A buffer may be off by this share of how far the step moved it. One that moved twice is off by about all of it."""
BUFFER_ROUNDING = 4.0
"""... and by this many times what rounding alone does to it. Up to 1.9 were measured where that is more than a
hundredth of the movement; 50 layers deep bf16 leaves running means off by a third of it."""


def tolerance(candidate: Settings, reference: Settings, device: str) -> Tolerance:
    """What the coarser of the two number formats explains; ``device`` is the torch type."""
    levels = (FINE, MIDDLE, COARSE)
    return levels[max(_level(settings.precision, device) for settings in (candidate, reference))]


def _level(precision: Precision, device: str) -> int:
    if precision is Precision.BF16:
        return 2
    if precision is Precision.FP16:
        return 1
    # PyTorch's default is tf32 in convolutions. CPUs have none.
    return 0 if precision is Precision.FP32 or device == "cpu" else 1


def judge(
    measurement: Measurement, *, candidate: Settings, reference: Settings, device: str
) -> tuple[Outcome, Failure] | None:
    """Return None if the candidate trains what the reference trains, else what is wrong with it."""
    seen = measurement.comparison
    if seen is None:
        return Outcome.CRASHED, Failure(
            cause=Cause.NO_ANSWER,
            message="the probe compared nothing",
            hint="look at the error output of the probe, and for calls that end the interpreter",
        )
    allowed = tolerance(candidate, reference, device)
    wrong = _no_reference(seen) or _not_finite(seen)
    if wrong is not None:
        return wrong
    changed = _gradients_lost(seen)
    if changed is None and measurement.steps_executed < measurement.steps_asked:
        return _refused(seen, measurement.steps_executed)
    changed = changed or _loss(seen, allowed) or _gradient(seen, allowed) or _buffers(seen) or _later(seen, allowed)
    if changed is None:
        return None
    return Outcome.CHANGES_TRAINING, _explained(changed, candidate, reference)


def of_candidate(outcome: Outcome, failure: Failure, measurement: Measurement) -> tuple[Outcome, Failure]:
    """The meaning of an error that was raised while comparing.

    Once the reference has trained on the very same batches, what the candidate raises is its own fault and not the
    workload's, however the words read. Memory and crashes stay what they are.
    """
    if outcome is not Outcome.WORKLOAD_ERROR or measurement.comparison is None:
        return outcome, failure
    return Outcome.UNSUPPORTED, replace(
        failure,
        cause=Cause.NOT_SUPPORTED,
        message=f"the workload trains under the reference and fails under these settings: {failure.message}",
        hint="the search goes on without these settings; to use them, change the code that fails",
    )


def _no_reference(seen: Comparison) -> tuple[Outcome, Failure] | None:
    """The candidate cannot be judged, which is not its fault; nor may it be recommended without."""
    bad = _first_none(seen.reference_losses)
    if not bad:
        return None
    return Outcome.WORKLOAD_ERROR, Failure(
        cause=Cause.NON_FINITE,
        phase=Phase.FORWARD,
        step=bad,
        message=f"the reference itself has no finite loss or gradient in step {bad}: nothing can be compared with it",
        hint="look at your own settings at a small batch: a variance over one sample, for example, is not finite",
    )


def _not_finite(seen: Comparison) -> tuple[Outcome, Failure] | None:
    bad = _first_none(seen.losses)
    if not bad:
        return None
    return Outcome.UNSTABLE, Failure(
        cause=Cause.NON_FINITE,
        phase=Phase.FORWARD,
        step=bad,
        message=f"loss or gradient is not finite in step {bad}, and the reference's loss is {_at(seen, bad):.4g} there",
        hint="look for a logarithm, division or exponential in low precision, and compute it in float32",
    )


def _refused(seen: Comparison, taken: int) -> tuple[Outcome, Failure]:
    return Outcome.UNSTABLE, Failure(
        cause=Cause.STEPS_SKIPPED,
        phase=Phase.OPTIMIZER,
        step=taken + 1,
        message=f"the gradient scaler skipped {seen.skipped} steps and took {taken}: gradients are not finite at any scale",
        hint="try --precision bf16, or a loss that does not overflow in fp16",
    )


def _gradients_lost(seen: Comparison) -> Failure | None:
    names = seen.lost or seen.gained
    if not names:
        return None
    get = "get" if len(names) > 1 else "gets"
    here, there = ("no gradient", "one") if seen.lost else ("a gradient", "none")
    return Failure(
        cause=Cause.GRADIENTS_LOST,
        phase=Phase.BACKWARD,
        step=1,
        message=f"{_named(names, 'parameter')} {get} {here}, and {get} {there} under the reference",
    )


def _loss(seen: Comparison, allowed: Tolerance) -> Failure | None:
    difference = seen.loss_difference
    if difference is None or difference <= allowed.loss:
        return None
    return Failure(
        cause=Cause.LOSS_DIFFERS,
        phase=Phase.FORWARD,
        step=1,
        message=f"the first loss is {seen.losses[0]:.5g} and the reference's {_at(seen, 1):.5g}:"
        f" {_percent(difference)} off, where {_percent(allowed.loss)} can be rounding",
    )


def _gradient(seen: Comparison, allowed: Tolerance) -> Failure | None:
    message = ""
    if seen.cosine is not None and seen.cosine < 1 - allowed.direction:
        message = (
            f"the gradient points elsewhere: its cosine with the reference's is {seen.cosine:.4f},"
            f" where {1 - allowed.direction:g} is the least that rounding explains"
        )
    elif seen.norm_ratio is not None and abs(seen.norm_ratio - 1) > allowed.length:
        message = (
            f"the gradient is {seen.norm_ratio:.4g} times as long as the reference's,"
            f" where {_percent(allowed.length)} can be rounding"
        )
    return Failure(cause=Cause.GRADIENTS_DIFFER, phase=Phase.BACKWARD, step=1, message=message) if message else None


def _buffers(seen: Comparison) -> Failure | None:
    if not seen.buffers:
        return None
    return Failure(
        cause=Cause.BUFFERS_DIFFER,
        step=1,
        message=f"{_named(seen.buffers, 'buffer')} {'end' if len(seen.buffers) > 1 else 'ends'} up elsewhere than under the"
        " reference after one step",
    )


def _later(seen: Comparison, allowed: Tolerance) -> Failure | None:
    """The losses after the first, which show what the optimizer made of the gradients.

    Where rounding alone changes the length of the gradient, two runs part soon, and only a loss is wrong that is worse
    than all of the reference's.
    """
    if seen.loss_difference is None:
        return None  # what is no measure of the first is none of the others
    known = [loss for loss in seen.reference_losses if loss is not None]
    moved = max(abs(loss - known[0]) for loss in known)
    for step, (loss, expected) in enumerate(zip(seen.losses, known, strict=False), 1):
        assert loss is not None  # all are finite by now
        off = abs(loss - expected) if seen.norm_ratio is not None else loss - max(known)
        if off > LATER * allowed.loss * abs(expected) + MOVEMENT * moved:
            return Failure(
                cause=Cause.LOSS_DIFFERS,
                phase=Phase.OPTIMIZER,
                step=step,
                message=f"the loss goes another way: {loss:.5g} in step {step}, and {expected:.5g} under the reference",
            )
    return None


def _explained(failure: Failure, candidate: Settings, reference: Settings) -> Failure:
    """The failure with what the settings have to do with it."""
    if candidate.accumulate != reference.accumulate:
        return replace(
            failure,
            message=f"accumulation is not equivalent here: with the same samples cut in other parts, {failure.message}",
            hint="look for batch norm, a loss that compares samples with each other, or a mean over what varies in number;"
            " --fix accumulate keeps yours",
        )
    changed = [f"{name}={value}" for name, value in candidate.changes(reference).items()]
    if failure.cause in (Cause.GRADIENTS_LOST, Cause.BUFFERS_DIFFER) and "checkpointing=own" in changed:
        hint = "the model's own switch checkpoints in a way that does this; autotune's does not:"
        return replace(failure, hint=f"{hint} --allow checkpointing=blocks")
    return replace(failure, hint=f"the search goes on without these settings, which change {', '.join(changed)}")


def _named(names: tuple[str, ...], noun: str) -> str:
    """``parameters a, b, c and 17 or more others``."""
    shown, others = ", ".join(names[:_NAMED]), len(names) - _NAMED
    plural = f"{noun}s" if len(names) > 1 else noun
    if others <= 0:
        return f"{plural} {shown}"
    more = " or more" if len(names) >= MOST_NAMES else ""
    return f"{plural} {shown} and {others}{more} others"


def _first_none(losses: tuple[float | None, ...]) -> int:
    """1-based; 0 if all are there."""
    return next((number for number, loss in enumerate(losses, 1) if loss is None), 0)


def _at(seen: Comparison, step: int) -> float:
    loss = seen.reference_losses[step - 1]
    assert loss is not None  # the reference is finite wherever it is looked at
    return loss


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
