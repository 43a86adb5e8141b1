"""What the user's functions returned, in words, and the loss among it checked."""

import torch

from autotune.errors import WorkloadError
from autotune.workload.batch import describe
from autotune.workload.seen import kind_of


def scalar(loss: object) -> torch.Tensor:
    """The loss, if it can be minimised.

    Raises:
        WorkloadError: it is no real tensor with one number.
    """
    if not isinstance(loss, torch.Tensor):
        raise WorkloadError(f"loss(model, batch) returned {in_words(loss)}, not a scalar tensor", hint=_loss_hint(loss))
    if loss.numel() != 1:
        raise WorkloadError(
            f"loss(model, batch) returned {describe(loss)}, which is not a scalar", hint="return its mean: loss.mean()"
        )
    if loss.is_complex():
        raise WorkloadError(
            f"loss(model, batch) returned {describe(loss)}, which cannot be minimised",
            hint="return loss.abs() or loss.real",
        )
    return loss


def _loss_hint(loss: object) -> str:
    if isinstance(loss, float | int):
        return "return the tensor itself: without .item() and float()"
    if isinstance(loss, tuple | list):
        return "return the loss alone, without logits or logs"
    if hasattr(loss, "loss") or (isinstance(loss, dict) and "loss" in loss):
        return "return its loss: output.loss or output['loss']"
    return "end it with `return loss`, a tensor with one number" if loss is None else "return a tensor with one number"


def in_words(result: object) -> str:
    """What it is, with its article and parts."""
    if isinstance(result, tuple | list):
        return f"{kind_of(result)} ({', '.join(type(part).__name__ for part in result[:4])})"
    if isinstance(result, float | int):
        return f"the {type(result).__name__} {result}"
    if isinstance(result, type):
        return f"the class {result.__name__}"
    return "None" if result is None else kind_of(result)
