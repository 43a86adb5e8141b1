"""The loss of a workload that does not bring its own.

Shapes that do not fit are a ``ValueError`` here, not a ``WorkloadError``: they may be wrong at one batch size only (a
squeezed dimension), and other sizes may still run.
"""

from collections.abc import Mapping

import torch
from torch import nn
from torch.nn import functional

from autotune.errors import WorkloadError
from autotune.workload.batch import describe

_WRITE = "write loss(model, batch) in the model file: it returns the scalar to minimise"


def default_loss(model: nn.Module, batch: object) -> torch.Tensor:
    """Loss by the form of the batch: the model's own for a mapping or a single tensor, else from (input, target).

    Integer targets give cross-entropy, in any of the layouts (N, C), (N, C, …) and (B, T, V); float targets the mean
    squared error. Half-precision outputs are compared in float32.

    Raises:
        WorkloadError: there is no default for such a batch, or the model returns no loss.
        ValueError: the shapes of output and target do not fit.
    """
    if isinstance(batch, Mapping):
        return _own_loss(model(**batch), "model(**batch)")
    if isinstance(batch, torch.Tensor):
        return _own_loss(model(batch), "model(batch)")
    if isinstance(batch, tuple | list) and len(batch) == 2 and isinstance(batch[1], torch.Tensor):
        return _supervised(model(batch[0]), batch[1])
    raise WorkloadError(f"there is no default loss for a batch {describe(batch)}", hint=_WRITE)


def own_loss(model: nn.Module, batch: object) -> torch.Tensor:
    """Loss that the model itself computes from a batch of its arguments.

    Raises:
        WorkloadError: it returns none.
    """
    if isinstance(batch, Mapping):
        return _own_loss(model(**batch), "model(**batch)")
    if isinstance(batch, tuple | list):
        return _own_loss(model(*batch), "model(*batch)")
    return _own_loss(model(batch), "model(batch)")


def _own_loss(output: object, call: str) -> torch.Tensor:
    loss = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    for found in (output, loss):
        if isinstance(found, torch.Tensor) and found.numel() == 1 and found.is_floating_point():
            return found
    raise WorkloadError(
        f"{call} returned {describe(output)}, which has no scalar loss",
        hint=f"{_WRITE}; models of transformers return one if the batch has labels",
    )


def _supervised(output: object, target: torch.Tensor) -> torch.Tensor:
    if not isinstance(output, torch.Tensor):
        raise WorkloadError(f"model(input) returned {describe(output)}, not a tensor", hint=_WRITE)
    if target.is_floating_point():
        if output.numel() != target.numel():
            raise _misfit("mean squared error", output, target)
        return functional.mse_loss(_wide(output).reshape(target.shape), _wide(target))
    if target.is_complex() or target.dtype is torch.bool:
        raise WorkloadError(f"there is no default loss for targets {describe(target)}", hint=_WRITE)
    return _cross_entropy(_wide(output), target.long())


def _cross_entropy(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    classes_second = logits.dim() >= 2 and (logits.shape[0], *logits.shape[2:]) == tuple(target.shape)
    classes_last = logits.dim() >= 2 and tuple(logits.shape[:-1]) == tuple(target.shape)
    if (classes_last or classes_second) and logits.shape[-1 if classes_last else 1] == 1:
        raise WorkloadError(
            f"the model's output {describe(logits)} has one class for integer targets {describe(target)}",
            hint=f"{_WRITE}, for example binary_cross_entropy_with_logits",
        )
    if classes_last and (logits.dim() <= 3 or not classes_second):
        return functional.cross_entropy(logits.flatten(0, -2), target.flatten())
    if classes_second:
        return functional.cross_entropy(logits, target)
    raise _misfit("cross-entropy", logits, target)


def _misfit(kind: str, output: torch.Tensor, target: torch.Tensor) -> ValueError:
    return ValueError(
        f"the default loss ({kind}) cannot compare an output {describe(output)} with a target {describe(target)}; {_WRITE}"
    )


def _wide(values: torch.Tensor) -> torch.Tensor:
    return values.float() if values.element_size() < 4 else values
