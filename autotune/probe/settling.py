"""How many steps a probe trains before what it saw of memory can be believed. Pure."""

from collections.abc import Sequence

from autotune.model import Form
from autotune.units import MIB

SETTLE_STEPS = 6
"""A short probe goes on to this many steps while allocator retries have not settled; the long form has its second half
to show it."""
MOST_STEPS = 30
"""... and to this many while the gradient scaler still skips, which halves from 65536 = 2**16 once a step; the long form as well
where its steps differ in memory."""
DIFFERS_SHARE = 0.0001
DIFFERS_LEAST_BYTES = MIB
"""Peaks of steady steps on batches of one shape are taken for the same within this share, or this much if that is more: on an H200
those of an MLP at its limit under 2 GiB were, and those of a mixture of experts at half of its limit under 16 GiB were not."""


def enough(
    form: Form,
    *,
    number: int,
    executed: int,
    skipped: int,
    retries: Sequence[int],
    peaks: Sequence[int | None],
    outlines: Sequence[int] = (),
) -> bool:
    """Whether a probe may end after step ``number``.

    Args:
        number: steps so far, 1 for the first.
        executed: those among them in which the optimizer took part.
        skipped: those that the gradient scaler refused.
        retries: of the allocator in each step.
        peaks: of each step, as in ``differ``.
        outlines: as in ``differ``.
    """
    if number < form.steps:
        return False
    if skipped and executed < form.steps:
        return number >= MOST_STEPS
    if form is Form.LONG and differ(peaks[skipped:], outlines):
        return number >= MOST_STEPS
    unsettled = any(retries[-Form.SHORT.steady_steps :])
    return not unsettled or number >= max(form.steps, SETTLE_STEPS)


def outlined_after(form: Form) -> tuple[int, ...]:
    """After so many executed steps the shapes of the next are looked at: in the first two that train on one candidate."""
    first = form.steps - form.steady_steps
    return (first, first + 1) if form is Form.LONG else ()


def differ(peaks: Sequence[int | None], outlines: Sequence[int] = ()) -> bool:
    """Whether tensors of the long form's steps are as large as the data says, though their batches have one shape.

    So it is with experts that tokens are routed to, boxes that are found, sequences that are packed. The next step may need more
    than any before it and cuts the allocator's memory in another way, so that eight say little. Shapes tell it where modules
    return such tensors (of experts, whose sum is always the same, no peak does), peaks where they are made in between. Peaks
    that only rise are those of a leak, of which eight say enough.

    Args:
        peaks: allocated bytes at most in each step, from the first on that the optimizer took part in; None on devices
            without an allocator that counts, and then nothing is concluded from shapes either.
        outlines: of the shapes of all that modules returned, of two steady steps or more.
    """
    steady = [peak for peak in peaks[Form.LONG.steps - Form.LONG.steady_steps : Form.LONG.steps] if peak is not None]
    if len(steady) < Form.LONG.steady_steps:
        return False
    if len(set(outlines)) > 1:
        return True
    if steady == sorted(steady):
        return False
    return max(steady) - min(steady) > max(DIFFERS_LEAST_BYTES, DIFFERS_SHARE * max(steady))
