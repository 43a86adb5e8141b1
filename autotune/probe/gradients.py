"""Gradients of two runs of one model, side by side: kept by parameter name, compared in double precision."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import nn

from autotune.apply.ranks import unwrapped, whole

Gradient: TypeAlias = dict[str, torch.Tensor]
"""By parameter name, on the CPU; parameters without a gradient are left out."""

_CHUNK = 1 << 24
"""Numbers turned into double precision at a time (128 MiB)."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One parameter's two gradients, as far as judging them needs."""

    dot: float
    square: float
    """Squared norm of the gradient that is compared."""
    reference_square: float
    """Squared norm of the one it is compared with."""
    count: int
    """Numbers in it."""

    @property
    def strayed(self) -> float:
        """Half the squared distance by the squared norm of the reference: 1 - cosine, for equal norms."""
        distance = self.square + self.reference_square - 2 * self.dot
        if not math.isfinite(distance) or (distance and not self.reference_square):
            return math.inf
        return max(0.0, distance) / self.reference_square / 2 if distance else 0.0


def is_finite(model: nn.Module) -> bool:
    """Whether all gradients are."""
    return all(bool(torch.isfinite(_values(grad)).all()) for _, grad in _gradients(model))


def keep(model: nn.Module, scale: float) -> Gradient:
    """The gradients there are, divided by the scale of the loss."""
    return {name: _on_cpu(grad, scale) for name, grad in _gradients(model)}


def compare(model: nn.Module, scale: float, reference: Gradient) -> dict[str, Pair]:
    """Each gradient there is, divided by the scale of the loss, beside the one that was kept.

    One that is all zero where none was kept is left out: it trains nothing, and compilers make such.
    """
    found: dict[str, Pair] = {}
    for name, grad in _gradients(model):
        mine, kept = _on_cpu(grad, scale), reference.get(name)
        if kept is not None:
            found[name] = _pair(mine, kept)
        elif bool(mine.any()):
            found[name] = _pair(mine, torch.zeros_like(mine))
    return found


def mean_square(gradient: Gradient) -> float:
    """Of all its numbers."""
    pairs = [_pair(kept, kept) for kept in gradient.values()]
    return sum(pair.square for pair in pairs) / max(1, sum(pair.count for pair in pairs))


def cosine(pairs: Iterable[Pair]) -> float | None:
    """Of the angle between all of them, taken as one vector; None where one is zero or not finite."""
    dot, square, reference_square = _sums(pairs)
    length = math.sqrt(square * reference_square)
    return dot / length if length and math.isfinite(length) else None


def norm_ratio(pairs: Iterable[Pair]) -> float | None:
    """Length of the gradient by that of the reference; None where one is zero or not finite."""
    _, square, reference_square = _sums(pairs)
    if not square or not reference_square or not math.isfinite(square + reference_square):
        return None
    return math.sqrt(square / reference_square)


def _sums(pairs: Iterable[Pair]) -> tuple[float, float, float]:
    held = list(pairs)
    return sum(p.dot for p in held), sum(p.square for p in held), sum(p.reference_square for p in held)


def _gradients(model: nn.Module) -> Iterable[tuple[str, torch.Tensor]]:
    """By the names that parameters have without ranks; of shards the whole, for which all ranks must ask."""
    named = unwrapped(model).named_parameters()
    return ((name, whole(parameter.grad)) for name, parameter in named if parameter.grad is not None)


def _values(grad: torch.Tensor) -> torch.Tensor:
    return grad._values() if grad.is_sparse else grad


def _on_cpu(grad: torch.Tensor, scale: float) -> torch.Tensor:
    dense = grad.detach().to_dense() if grad.is_sparse else grad.detach()
    real = torch.view_as_real(dense) if dense.is_complex() else dense
    return real.to("cpu", torch.float32, copy=True).div_(scale).contiguous()


def _pair(mine: torch.Tensor, kept: torch.Tensor) -> Pair:
    flat, flat_kept = mine.flatten(), kept.flatten()
    dot = square = reference_square = 0.0
    for start in range(0, len(flat), _CHUNK):
        a64, b64 = (values[start : start + _CHUNK].double() for values in (flat, flat_kept))
        dot += float(a64 @ b64)
        square += float(a64 @ a64)
        reference_square += float(b64 @ b64)
    return Pair(dot, square, reference_square, mine.numel())
