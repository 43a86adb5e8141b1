"""``torch.compile`` of a model's forward pass, and what the compiler counts."""

import copy
import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from autotune.apply.unsupported import Unsupported
from autotune.errors import UsageError
from autotune.model import Compile, Settings


def is_on(settings: Settings) -> bool:
    """Whether anything is compiled."""
    return settings.compile is not Compile.OFF


def check(settings: Settings) -> None:
    """See that an activation budget can be kept to.

    Raises:
        Unsupported: nothing is compiled, or this PyTorch has no such budget.
    """
    if settings.activation_budget == 1:
        return
    if not is_on(settings):
        raise Unsupported("an activation budget is kept by the compiler, and compile is off")
    if not hasattr(_functorch_config(), "activation_memory_budget"):
        raise Unsupported(f"PyTorch {torch.__version__} has no activation budget")


def apply(parts: Sequence[nn.Module], settings: Settings) -> None:
    """Compile the forward passes of these, in place, at their first call and again for every new shape.

    Raises:
        UsageError: one is compiled already.
    """
    if any(isinstance(vars(part).get("forward"), _Compiled) for part in parts):
        raise UsageError("the model is compiled already", hint="prepare a model once, before the training loop")
    if settings.activation_budget < 1:
        _functorch_config().activation_memory_budget = settings.activation_budget
    for part in parts:
        part.forward = _Compiled(part, part.forward, settings.compile)


class _Compiled:
    """A model's ``forward`` attribute: the compiled one.

    Not ``Module.compile()``, which compiles the call with its hooks: a hook that counts or keeps anything changes state
    that the compiler guards, and every call would be compiled anew. Like this, hooks of the model itself stay outside.
    A copy of the model gets its plain ``forward`` back, since the compiled one would compute with this model's weights.
    """

    def __init__(self, model: nn.Module, forward: Callable[..., Any], mode: Compile) -> None:
        functools.update_wrapper(self, forward)
        self._model = model
        self._forward = forward
        self._compiled = torch.compile(forward, mode=mode.value, dynamic=False)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._compiled(*args, **kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Callable[..., Any]:
        copied: Callable[..., Any] = copy.deepcopy(self._forward, memo)
        return copied

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (self._model, "forward")  # at that time it has only that of its class


def counts() -> tuple[int, int] | None:
    """Graphs made and graph breaks in this process so far; None where this PyTorch does not count them.

    The counters are not documented; PyTorch's own tests and reports read them.
    """
    try:
        from torch._dynamo.utils import counters
    except ImportError:
        return None
    return int(counters["stats"]["unique_graphs"]), int(sum(counters["graph_break"].values()))


def _functorch_config() -> Any:
    import torch._functorch.config

    return torch._functorch.config
