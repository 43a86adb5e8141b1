"""Mixed precision as Accelerate has it: autocast in the model's forward alone, and outputs that become fp32 after it.

A probe's autocast is around the whole loss. What a loss outside of the model would then compute in 16 bits, a Trainer
computes in 32, and the outputs take memory once more; what is probed must be what is trained.
"""

import functools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

_STATE = "_autotune_autocast"


class _Autocast:
    """In which format the forward pass of one model runs at the moment."""

    dtype: torch.dtype | None = None
    """None = nothing is done to it."""
    device_type = "cpu"


def keep_autocast_inside(model: nn.Module) -> None:
    """Prepare a model for ``autocast_inside``; its forward keeps its signature."""
    state, plain = _Autocast(), model.forward
    convert = sys.modules["accelerate.utils.operations"].convert_to_fp32

    @functools.wraps(plain)
    def forward(*args: Any, **kwargs: Any) -> Any:
        if state.dtype is None:
            return plain(*args, **kwargs)
        with torch.autocast(state.device_type, dtype=state.dtype):
            output = plain(*args, **kwargs)
        return convert(output)

    model.forward = forward
    model.__dict__[_STATE] = state


@contextmanager
def autocast_inside(model: nn.Module, device: torch.device) -> Iterator[None]:
    """Inside, the autocast that is on around this is on in the model's forward alone."""
    state: _Autocast | None = vars(model).get(_STATE)
    if state is None or not torch.is_autocast_enabled(device.type):
        yield
        return
    state.dtype, state.device_type = torch.get_autocast_dtype(device.type), device.type
    try:
        with torch.autocast(device.type, enabled=False):
            yield
    finally:
        state.dtype = None
