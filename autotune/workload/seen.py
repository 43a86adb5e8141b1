"""Telling tensors, modules and arrays by looking at libraries that are loaded already. Parent side: imports none of them."""

import datetime
import decimal
import fractions
import logging
import re
import sys
from pathlib import PurePath

_BY_REPR = (
    range,
    slice,
    PurePath,
    decimal.Decimal,
    fractions.Fraction,
    datetime.date,
    datetime.time,
    datetime.timedelta,
)


def is_tensor(item: object) -> bool:
    """True for tensors and arrays: things whose dtype and shape count, not their values."""
    return _is(item, "torch", "Tensor") or _is(item, "numpy", "ndarray")


def tensor_facts(item: object) -> str:
    """Type, shape and gradient flag of a tensor or array; its values do not count."""
    try:
        return " ".join(str(getattr(item, name, "")) for name in ("dtype", "shape", "requires_grad"))
    except RuntimeError:  # a lazy parameter has no shape yet
        return "without shape"


def is_torch_tensor(item: object) -> bool:
    """True for tensors, parameters among them."""
    return _is(item, "torch", "Tensor")


def is_module(item: object) -> bool:
    """True for an ``nn.Module`` object (not a class)."""
    return _is(item, "torch.nn", "Module")


def shown(item: object) -> str | None:
    """Text that says all about a value of a few well-known kinds; None for every other kind."""
    if isinstance(item, logging.Logger):
        return item.name
    if isinstance(item, re.Pattern):
        return repr((item.pattern, item.flags))
    if _is(item, "torch.utils.hooks", "RemovableHandle"):
        return "hook"  # its number counts all hooks of the process
    torch_values = any(_is(item, "torch", name) for name in ("dtype", "device", "layout", "memory_format"))
    numpy_values = any(_is(item, "numpy", name) for name in ("generic", "ufunc", "dtype"))
    return repr(item) if torch_values or numpy_values or isinstance(item, _BY_REPR) else None


def kind_of(item: object) -> str:
    """The item's class with its article, for messages: ``an int``, ``a DataLoader``."""
    name = type(item).__qualname__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def _is(item: object, module: str, name: str) -> bool:
    found: object = getattr(sys.modules.get(module), name, None)
    return isinstance(found, type) and isinstance(item, found)
