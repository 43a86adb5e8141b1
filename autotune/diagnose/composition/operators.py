"""What the operators of one training step cost, by PyTorch's profiler."""

import warnings
from collections.abc import Callable, Iterable

import torch
from torch.profiler import ProfilerActivity, profile

from autotune.model import OperatorCost

MAX_OPERATORS = 8
"""So many of the dearest are told."""


def profile_step(step: Callable[[], None], device: torch.device) -> tuple[OperatorCost, ...]:
    """Costs of all operators of one step, in no order. The step should not be the first: those load libraries.

    Raises:
        RuntimeError: the profiler does not run here (drivers may refuse it to users).
    """
    activities = [ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the profiler's own, about its clock and its deprecated names
        with profile(activities=activities, profile_memory=True) as seen:
            step()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
        averages = seen.key_averages()
    on = "device" if device.type == "cuda" else "cpu"
    return tuple(
        OperatorCost(
            name=str(one.key),
            calls=int(one.count),
            seconds=max(0.0, float(getattr(one, f"self_{on}_time_total")) / 1e6),
            allocated_bytes=max(0, int(getattr(one, f"self_{on}_memory_usage"))),
        )
        for one in averages
        if "::" in str(one.key) and not str(one.key).startswith("autograd::")
    )


def dearest(costs: Iterable[OperatorCost]) -> tuple[tuple[OperatorCost, ...], tuple[OperatorCost, ...]]:
    """The largest by time, and the largest by memory; what costs nothing is left out."""
    found = list(costs)
    by_time = sorted((one for one in found if one.seconds > 0), key=lambda one: -one.seconds)
    by_memory = sorted((one for one in found if one.allocated_bytes > 0), key=lambda one: -one.allocated_bytes)
    return tuple(by_time[:MAX_OPERATORS]), tuple(by_memory[:MAX_OPERATORS])
