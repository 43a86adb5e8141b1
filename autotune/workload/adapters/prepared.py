"""A Hugging Face Trainer that has trained in this process, as it travels to another: without what that has left in it.

Imports nothing of it; objects are told by the names of their classes.
"""

import pickle
from typing import Any

from autotune.workload.adapters.kinds import TRAINER, is_a
from autotune.workload.seen import is_module

OPTIMIZER = ("accelerate.optimizer.AcceleratedOptimizer",)
_ACCELERATOR = ("accelerate.accelerator.Accelerator",)
_ONE_A_PROCESS = ("accelerate.state.GradientState",)
"""Objects whose state all of a process share, and which refer to whatever it is doing: another process has its own."""
_MODULE_ADDED = ("forward", "_original_forward", "_is_accelerate_prepared")
"""Attributes of a module that was prepared: its forward with a precision, which cannot be pickled."""
_PREPARED_LISTS = ("_models", "_optimizers", "_schedulers", "_dataloaders")


def reduced(item: Any) -> Any:
    """How such an object is pickled, as ``__reduce__`` says it; ``NotImplemented`` for all others."""
    if isinstance(item, type):
        return NotImplemented
    if is_a(item, _ONE_A_PROCESS):
        return type(item), ()
    if is_module(item) and "_original_forward" in vars(item):
        return _changed(item, {}, _MODULE_ADDED)
    if is_a(item, _ACCELERATOR):
        return _changed(item, {name: [] for name in _PREPARED_LISTS})
    if is_a(item, TRAINER):
        own = {"lr_scheduler": None, "callback_handler": None, "model_wrapped": item.model}
        return _changed(item, {**own, "optimizer": unwrapped(item.optimizer)})
    return NotImplemented


def unwrapped(optimizer: Any) -> Any:
    """The optimizer itself, where a training of the Trainer has left Accelerate's around it."""
    return optimizer.optimizer if is_a(optimizer, OPTIMIZER) else optimizer


def _changed(item: Any, new: dict[str, object], left_out: tuple[str, ...] = ()) -> Any:
    """The item's own way, with other attributes."""
    make, arguments, state, *more = item.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
    kept = {name: value for name, value in state.items() if name not in left_out}
    return make, arguments, {**kept, **new}, *more
