"""Which batch sizes candidates are probed at, and how many micro-batches of that size an optimizer step takes."""

from dataclasses import dataclass, replace

from autotune.errors import UsageError
from autotune.model import Settings

_TIMED_MICRO_BATCHES = 2
"""Micro-batches of a step that is only timed. With two of them memory is that of any larger number (gradients are alive
while the next activations are made), and the optimizer's share of the step is no longer that of a step without
accumulation; a step of thirty-two would take sixteen times as long."""
_ROUNDING = 0.1
"""Share of a size that may be given up for a rounder one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The sizes in question."""

    unit: int
    """Sizes are multiples of this."""
    bound: int
    """Largest size allowed."""
    accumulate: int = 1
    """Micro-batches of an optimizer step, where no effective batch is asked for."""
    share: int | None = None
    """Samples of an optimizer step on one device, to be held exactly; None = not asked for. Sizes are its divisors."""

    def down(self, size: float) -> int | None:
        """The largest legal size that is not above ``size``; None where there is none."""
        top = min(int(size), self.bound) // self.unit * self.unit
        if self.share is None:
            return top if top >= self.unit else None
        share = self.share
        return next((n for n in range(min(top, share), 0, -1) if share % n == 0 and n % self.unit == 0), None)

    def up(self, size: int, top: int) -> int:
        """The smallest legal size from ``size`` on, below ``top``, which is legal; else that."""
        share = self.share or 0
        return next((n for n in range(size, top) if share % n == 0 and n % self.unit == 0), top)

    def round(self, size: float) -> int | None:
        """As ``down``, and rounder where that costs little: kernels like powers of two, and 250 is no better than 256."""
        top = self.down(size)
        if top is None or self.share is not None:
            return top
        factor, rounder = self.unit, top
        while top // (2 * factor) * (2 * factor) >= (1 - _ROUNDING) * top:
            factor *= 2
            rounder = top // factor * factor
        return rounder

    def trained(self, settings: Settings, size: int) -> Settings:
        """With the accumulation that a training with micro-batches of this size has."""
        return replace(settings, accumulate=self.micro_batches(size))

    def timed(self, settings: Settings, size: int) -> Settings:
        """With as much of that accumulation as timing needs."""
        return replace(settings, accumulate=min(self.micro_batches(size), _TIMED_MICRO_BATCHES))

    def micro_batches(self, size: int) -> int:
        """Micro-batches of an optimizer step."""
        return self.accumulate if self.share is None else self.share // size


def share_of(effective_batch: int | None, world: int, unit: int) -> int | None:
    """Samples of an optimizer step on one device; None where no effective batch is asked for.

    Raises:
        UsageError: the effective batch cannot be divided among the devices into micro-batches of a legal size.
    """
    if world < 1:
        raise UsageError(f"--world is {world}; it counts the devices that train together", hint="give 1 or more")
    if effective_batch is None:
        return None
    if effective_batch < 1:
        raise UsageError(f"--effective-batch is {effective_batch}", hint="give a number of samples from 1 on")
    step = world * unit
    if effective_batch % step == 0:
        return effective_batch // world
    below = effective_batch // step * step
    near = f"{below} or {below + step}" if below else f"{below + step}"
    made_of = f"{world} devices with micro-batches in multiples of {unit}" if unit > 1 else f"{world} devices"
    raise UsageError(
        f"an effective batch of {effective_batch} cannot be held exactly by {made_of}: it is no multiple of {step}",
        hint=f"give --effective-batch {near}",
    )
