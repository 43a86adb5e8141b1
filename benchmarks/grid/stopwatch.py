"""Timing training steps the plain way, for whatever takes them: a fresh batch each, the device waited for on both sides.

No autotune in here, so that everybody's pick is timed by the same code, which is none of its own.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import torch

from benchmarks.comparison.child import to_device

WARM_UP = 5
"""First steps that are not timed: compiling, choosing kernels, making the optimizer's state."""
TIMED = 10


@dataclass(slots=True)
class Timing:
    """Some training steps."""

    seconds: list[float] = field(default_factory=list)
    """Of each that was done, the first ones included."""
    message: str = ""
    """How the training ended before its time; empty if it did not."""

    def throughput(self, samples: int) -> float | None:
        """Samples per second by the median of all steps but the first ones; None where there are not more than those.

        ``samples``: of one step.
        """
        counted = self.seconds[WARM_UP:]
        return round(samples / median(counted), 2) if counted else None


def time_steps(step: Callable[[Any], object], make_batch: Callable[[], Any], device: str, *, steps: int) -> Timing:
    """Train. Making a batch and moving it is left out of a step's time; the one before it lives until it is there."""
    timing = Timing()
    try:
        for _ in range(steps):
            batch = to_device(make_batch(), device)
            wait(device)
            began = time.perf_counter()
            step(batch)
            wait(device)
            timing.seconds.append(time.perf_counter() - began)
    except RuntimeError as error:  # out of memory comes in many texts, and whatever else it is, it did not survive
        text = str(error).strip()
        timing.message = f"{type(error).__name__}: {text.splitlines()[0] if text else ''}"
    return timing


def wait(device: str) -> None:
    """Until the device has done all it was given."""
    if device == "cuda":
        torch.cuda.synchronize()
