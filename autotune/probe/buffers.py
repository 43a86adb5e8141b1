"""Buffers of two runs of one model, side by side: which of them a step left in different states."""

import math
from collections.abc import Mapping

import torch
from torch import nn

from autotune.apply.ranks import unwrapped

Buffers = dict[str, torch.Tensor]
"""By name, on the CPU."""


def keep(model: nn.Module) -> Buffers:
    """Copies of all of them, those that are not saved as well."""
    return {name: buffer.detach().to("cpu", copy=True) for name, buffer in unwrapped(model).named_buffers()}


def put_back(model: nn.Module, buffers: Buffers) -> None:
    """Overwrite the model's buffers; those that came later stay."""
    for name, buffer in unwrapped(model).named_buffers():
        if name in buffers and buffers[name].shape == buffer.shape:
            with torch.no_grad():
                buffer.copy_(buffers[name])


def distances(found: Buffers, reference: Buffers) -> dict[str, float]:
    """How far apart those are that are in both: the norm of the difference, infinite where it is not finite."""
    return {name: _distance(found[name], reference[name]) for name in reference if name in found}


def differing(
    found: Buffers, reference: Buffers, before: Buffers, rounding: Mapping[str, float], share: float, times: float
) -> tuple[str, ...]:
    """Names of those that are further apart than a share of how far the reference's moved, and than rounding explains.

    Args:
        found: the candidate's, after a step.
        reference: the reference's, after the same step.
        before: of both, before it.
        rounding: how far rounding alone moves them.
        share: of the reference's movement.
        times: of what rounding does.
    """
    return tuple(
        name
        for name, distance in distances(found, reference).items()
        if distance > 0
        and distance
        > share * _distance(reference[name], before.get(name, reference[name]))
        + times * rounding.get(name, 0.0)
        + _own_rounding(reference[name])
    )


def _distance(a: torch.Tensor, b: torch.Tensor) -> float:
    if a.shape != b.shape:
        return math.inf
    a, b = (_double(tensor) for tensor in (a, b))
    # Equal infinities are equal: masks have them.
    difference = torch.where((a == b) | (a.isnan() & b.isnan()), torch.zeros_like(a), a - b)
    distance = float(difference.norm())
    return distance if math.isfinite(distance) else math.inf


def _own_rounding(buffer: torch.Tensor) -> float:
    """What its own number format cannot tell apart."""
    if not (buffer.is_floating_point() or buffer.is_complex()):
        return 0.0
    values = _double(buffer)
    finite = torch.where(values.isfinite(), values, torch.zeros_like(values))
    return 4 * torch.finfo(buffer.dtype).eps * float(finite.norm())


def _double(tensor: torch.Tensor) -> torch.Tensor:
    return (torch.view_as_real(tensor) if tensor.is_complex() else tensor).double()
