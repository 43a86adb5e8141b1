"""``example_inputs`` of a model -> a batch maker: the example's samples repeated to the size asked for."""

from collections.abc import Callable

import torch
from torch import nn

from autotune.errors import WorkloadError
from autotune.workload.batch import describe, map_tensors, tensors
from autotune.workload.parts import accepts

_NAMES = ("example_inputs", "example_input_array")


def example_name(model: type[nn.Module] | nn.Module) -> str:
    """Name of the attribute with the example; empty if the class or object has none (or only None)."""
    return next((name for name in _NAMES if getattr(model, name, None) is not None), "")


def batch_maker(make_model: Callable[[], object], name: str) -> Callable[[int], object]:
    """``make_batch`` that repeats the rows of the example inputs.

    Args:
        make_model: makes a model that has the example; called once, with the first batch.
        name: the attribute: a tensor, tuple or dict whose first dimension is the batch, or a function without arguments
            that returns one.
    """
    known: list[object] = []

    def make_batch(batch_size: int) -> object:
        if not known:
            known.append(_example(getattr(make_model(), name), name))
        return map_tensors(known[0], lambda tensor: _resize(tensor, batch_size))

    return make_batch


def _example(value: object, name: str) -> object:
    if callable(value) and accepts(value):
        value = value()
    if not any(tensor.dim() > 0 and len(tensor) > 0 for tensor in tensors(value)):
        raise WorkloadError(
            f"{name} is {describe(value)}, without a tensor that has a batch dimension",
            hint="make it a tensor, tuple or dict whose first dimension is the batch, or write make_batch(batch_size)",
        )
    return value


def _resize(tensor: torch.Tensor, rows: int) -> torch.Tensor:
    if tensor.dim() == 0 or len(tensor) == 0:
        return tensor
    return tensor.detach()[torch.arange(rows) % len(tensor)]
