"""Number formats: tf32 switches, autocast, the gradient scaler. Parameters stay as the user made them."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn

from autotune.apply.unsupported import Unsupported
from autotune.model import Precision, Settings

_AUTOCAST = {Precision.BF16: torch.bfloat16, Precision.FP16: torch.float16}
_HALVES = (torch.float16, torch.bfloat16)


def set_tf32(precision: Precision) -> None:
    """Forbid tf32 in the whole process for strict fp32, allow it for all else; the default leaves it alone."""
    if precision is not Precision.DEFAULT:
        allow = precision is not Precision.FP32
        torch.backends.cuda.matmul.allow_tf32 = allow
        torch.backends.cudnn.allow_tf32 = allow


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """Autocast to the 16-bit format, or nothing."""
    dtype = _AUTOCAST.get(precision)
    return nullcontext() if dtype is None else torch.autocast(device.type, dtype=dtype)


def make_scaler(settings: Settings, device: torch.device) -> torch.amp.GradScaler | None:
    """The gradient scaler that fp16 needs; None for all else."""
    if settings.precision is not Precision.FP16:
        return None
    return torch.amp.GradScaler(device.type, init_scale=settings.init_scale)


def check_parameters(model: nn.Module, precision: Precision) -> None:
    """See that the gradient scaler can work on the model.

    Raises:
        Unsupported: under fp16, a parameter to train is in half precision itself, and so would its gradient be.
    """
    if precision is not Precision.FP16:
        return
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and parameter.dtype in _HALVES:
            kind = str(parameter.dtype).removeprefix("torch.")
            raise Unsupported(
                f"fp16 autocast scales gradients, and that of parameter {name} would be {kind} like the parameter itself;"
                " the gradient scaler needs parameters in float32"
            )
