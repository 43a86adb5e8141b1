"""What may be changed to need less memory, with what it saves and costs."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """One change of the training."""

    change: str
    """As it is typed or written: ``checkpointing=blocks``, ``batch 8 instead of 16``."""
    does: str
    """What it does, in half a sentence."""
    measured: bool
    """By a probe of this training in a process of its own; else it is an estimate."""
    saved_bytes: int | None
    """Of the peak; None where there is no peak to compare with, since the training dies without the change."""
    time_ratio: float | None
    """Time a sample takes, by that without the change: 1.3 = 30 % more. None = not known."""
    source: str
    """What the figures rest on."""
    survives: bool = False
    """The training dies without the change and runs with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advised:
    """All of it."""

    peak_bytes: int | None
    """Of the training as it is; None where it dies. CUDA: allocated. CPU: resident memory of the process."""
    advice: tuple[Advice, ...] = ()
    """What makes a dying training survive first, then by bytes saved; estimates last."""
    without: tuple[str, ...] = ()
    """What was tried or looked at, and is no advice: each with the reason."""
