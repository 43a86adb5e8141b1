"""Order of the dimensions in memory: ``channels_last`` for the model's weights and for what it is called with."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from autotune.apply.unsupported import Unsupported
from autotune.model import MemoryFormat


def apply(model: nn.Module, memory_format: MemoryFormat) -> None:
    """Convert the four-dimensional weights, and from now on the four-dimensional inputs of the model.

    Raises:
        Unsupported: the model has five-dimensional weights, which have a format of their own.
    """
    if memory_format is not MemoryFormat.CHANNELS_LAST:
        return
    for name, parameter in model.named_parameters():
        if parameter.dim() == 5:
            raise Unsupported(f"channels_last is for images, and parameter {name} has five dimensions")
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    model.register_forward_pre_hook(_convert_inputs, with_kwargs=True)


def _convert_inputs(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return tuple(_each(value, _inside) for value in args), {
        name: _each(value, _inside) for name, value in kwargs.items()
    }


def _inside(value: Any) -> Any:
    return _each(value, _convert)


def _each(value: Any, change: Callable[[Any], Any]) -> Any:
    """A plain tuple, list or dictionary with its members changed; anything else changed itself."""
    if type(value) in (tuple, list):
        return type(value)(change(item) for item in value)
    if type(value) is dict:
        return {key: change(item) for key, item in value.items()}
    return _convert(value)


def _convert(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.dim() == 4 and value.is_floating_point():
        return value.contiguous(memory_format=torch.channels_last)
    return value
