"""Whether a micro-batch may be trained on in parts: parts must add up to the whole. Looked at, then measured.

Batch statistics and losses that compare samples with each other do not add up, and neither do means that are weighted
by the wrong number. The model tells of batch norm; of the loss nothing tells but trying, on a few samples.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from autotune.probe.dropout import switched_off
from autotune.runtime.halves import own
from autotune.runtime.parts import Parts
from autotune.runtime.plain import Applies
from autotune.workload.batch import tensors

TOLERANCE = 0.02
"""Share of the gradient by which few samples in one piece and in two may differ: lower precision rounds by about 1 %
(bfloat16 has 8 bits), a contrastive loss or a wrong weight is off by tens of percent."""
SKETCH = 4096
"""Elements of each gradient that are compared, evenly spread: a copy of a whole gradient may be what does not fit."""


class ShowsNothing(Exception):
    """Raised inside of the room: other samples may show more; the message says why these do not."""


def obstacle(model: nn.Module, parameters: Sequence[torch.Tensor]) -> str:
    """What in the training stands in the way of parts, found by looking; empty where nothing is seen."""
    for name, module in model.named_modules():
        uses_batch = isinstance(module, _BatchNorm) and (module.training or not module.track_running_stats)
        if uses_batch:
            return f"{name or 'the model'} is a {type(module).__name__} in training mode, whose statistics are of the batch"
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        ranks = torch.distributed.get_world_size()
        if ranks > 1:
            return f"{ranks} processes train together, and the others would wait for gradients of the parts"
    if any(getattr(parameter, "_post_accumulate_grad_hooks", None) for parameter in parameters):
        return "a hook works on each gradient as soon as it is there, and would see those of the parts"
    return ""


def found_by_trying(
    model: nn.Module,
    parameters: Sequence[torch.Tensor],
    applied: Applies,
    parts: Parts,
    loss: Callable[[Any, Any], torch.Tensor],
    few: Any,
) -> str:
    """What the gradients of few samples, in one piece and in two, say against parts; empty where they add up.

    Dropout is off meanwhile. Gradients, random numbers and modes are as before afterwards; buffers that the model changes
    in its forward pass are not.

    Args:
        parameters: all that a backward pass may add to.

    Raises:
        ShowsNothing: their gradient is nothing, or is not finite.
        NotCut: their form does not tell where a sample ends.
        torch.OutOfMemoryError, RuntimeError: whatever the passes raise.
    """
    weighted = parts.weighted(few)
    if weighted is None:
        return "a single sample has no parts"

    def gradient(pieces: Sequence[tuple[Any, float]]) -> torch.Tensor:
        for parameter in parameters:
            parameter.grad = None
        for piece, weight in pieces:
            with applied.autocast():
                value = loss(model, own(piece))
            applied.backward(value * weight)
        return _sketch(parameters)

    kept = [parameter.grad for parameter in parameters]
    versions = [tensor._version for tensor in tensors(few)]
    devices = sorted({p.device.index for p in parameters if p.device.type == "cuda" and p.device.index is not None})
    try:
        with torch.random.fork_rng(devices), switched_off(model):
            one, several = gradient([(few, 1.0)]), gradient(weighted)
            if versions != [tensor._version for tensor in tensors(few)]:
                return "the loss changes the tensors of its batch in place, and what ran once would run on others"
            length = float(one.norm())
            if length == 0 or not math.isfinite(length):
                word = "zero" if length == 0 else "not finite"
                raise ShowsNothing(
                    f"the gradient of {parts.samples(few) or 'a few'} samples is {word}, which does not show whether parts add up"
                )
            off = _share(several, one)
            if off <= TOLERANCE:
                return ""
            if _share(gradient([(few, 1.0)]), one) > TOLERANCE:
                return "the loss draws random numbers of its own, so trying does not show whether parts add up"
    finally:
        for parameter, held in zip(parameters, kept, strict=True):
            parameter.grad = held
    return (
        f"on {parts.samples(few) or 'a few'} samples the gradient of two parts is {off:.0%} off that of the whole: the"
        " loss compares samples with each other, or is a mean over something else than what count= counts"
    )


def _share(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """By which share of its length one gradient is off another."""
    return float((found - wanted).norm()) / float(wanted.norm())


def _sketch(parameters: Sequence[torch.Tensor]) -> torch.Tensor:
    """Some elements of each gradient, zeros where there is none, on the CPU; the gradients are let go."""
    taken = []
    for parameter in parameters:
        if parameter.grad is None:
            taken.append(torch.zeros(len(range(0, parameter.numel(), _every(parameter)))))
        else:
            gradient = parameter.grad.detach()
            held = gradient.coalesce().values() if gradient.is_sparse else gradient
            taken.append(held.reshape(-1)[:: _every(held)].float().cpu())
        parameter.grad = None
    return torch.cat(taken)


def _every(tensor: torch.Tensor) -> int:
    return max(1, tensor.numel() // SKETCH)
