"""Switching dropout off in a model that stays in training mode, so that two runs of it can be compared.

Equal seeds would not do: which numbers are dropped depends on number format, memory order and compiler as well.
"""

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any

from torch import nn
from torch.nn import functional

_FUNCTIONS = {
    "dropout": 1,
    "dropout1d": 1,
    "dropout2d": 1,
    "dropout3d": 1,
    "alpha_dropout": 1,
    "feature_alpha_dropout": 1,
    "scaled_dot_product_attention": 4,
}
"""Functions of ``torch.nn.functional`` that drop -> place of the probability among their arguments."""
_PROBABILITIES = ("p", "dropout_p")
"""Names of that argument, and of the attribute of modules that are about nothing but dropping."""
_CONFIGS = ("config", "cfg", "args", "hparams")
"""Attributes in which models keep what they were made with, and look it up while they run."""
_DROPPING = ("drop", "stochasticdepth")
"""What class names of modules have in them that are about nothing but dropping. Lower case."""


@contextmanager
def switched_off(model: nn.Module) -> Iterator[None]:
    """Nothing is dropped inside; afterwards everything is as it was.

    Three ways are known: attributes of modules, and of the configuration they keep, whose names say ``drop`` and whose
    value is a share; the probability of dropout modules; calls of PyTorch's functions (``F.dropout(x, 0.1)``), as long
    as they are not imported by name. Other randomness is not touched.
    """
    with ExitStack() as undo:
        for module in model.modules():
            _silence(module, undo)
            for name in _CONFIGS:
                _silence(vars(module).get(name), undo)
        for name, place in _FUNCTIONS.items():
            original = getattr(functional, name)
            setattr(functional, name, _never(original, place))
            undo.callback(setattr, functional, name, original)
        yield


def _silence(owner: object, undo: ExitStack) -> None:
    """Set what drops in this object to zero."""
    kind = type(owner).__name__.lower()
    drops = isinstance(owner, nn.Module) and any(word in kind for word in _DROPPING)
    for name, value in _entries(owner):
        named = "drop" in name.lower() or (drops and name in _PROBABILITIES)
        if named and isinstance(value, float) and 0 < value < 1:
            _put(owner, name, 0.0)
            undo.callback(_put, owner, name, value)


def _entries(owner: object) -> list[tuple[str, object]]:
    if isinstance(owner, dict):
        return [(name, value) for name, value in owner.items() if isinstance(name, str)]
    if dataclasses.is_dataclass(owner):  # one with slots has no dictionary
        return [(field.name, getattr(owner, field.name, None)) for field in dataclasses.fields(owner)]
    return list(vars(owner).items()) if hasattr(owner, "__dict__") else []


def _put(owner: object, name: str, value: object) -> None:
    if isinstance(owner, dict):
        owner[name] = value
    else:
        object.__setattr__(owner, name, value)  # also where the class is frozen


def _never(function: Callable[..., Any], place: int) -> Callable[..., Any]:
    """The function with a probability of zero, whatever it is called with."""

    @wraps(function)
    def undropped(*args: Any, **kwargs: Any) -> Any:
        if len(args) > place:
            args = (*args[:place], 0.0, *args[place + 1 :])
        elif place == 1:
            kwargs["p"] = 0.0  # whose default would drop
        elif "dropout_p" in kwargs:
            kwargs["dropout_p"] = 0.0
        return function(*args, **kwargs)

    return undropped
