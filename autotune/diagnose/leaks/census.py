"""What is there: containers and how long they are, hooks, the module's state, graphs. Taken twice, it says what grows."""

import gc
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Self

import torch
from torch import nn

_LENGTHS: dict[type, Callable[[Any], int]] = {
    list: list.__len__,
    dict: dict.__len__,
    set: set.__len__,
    deque: deque.__len__,
}
_MOST_NODES = 50_000


@dataclass(frozen=True, slots=True)
class Hooks:
    """One place where hooks are registered."""

    where: str
    registered: Any
    """Dict of them."""


@cache
def _measure(kind: Any) -> Callable[[Any], int] | None:
    """How long a container of this class is, whatever the class says of itself; None for what is none."""
    return next((measure for base, measure in _LENGTHS.items() if issubclass(kind, base)), None)


def length(container: Any) -> int:
    """Of a container."""
    kind: Any = type(container)
    measure = _measure(kind)
    assert measure is not None
    return measure(container)


@dataclass(frozen=True, slots=True)
class Census:
    """What Python's collector knows at one moment."""

    containers: list[tuple[Any, int]]
    """With their lengths."""
    tensors: list[torch.Tensor]

    @classmethod
    def take(cls) -> Self:
        """Of what is not frozen."""
        everything = gc.get_objects()
        kinds: dict[Any, Any] = {kind: _measure(kind) for kind in set(map(type, everything))}
        tensor_kinds = {kind for kind in kinds if issubclass(kind, torch.Tensor)}
        found = [(one, measure(one)) for one in everything if (measure := kinds[type(one)]) is not None]
        return cls(found, [one for one in everything if type(one) in tensor_kinds])


def hooks(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[Hooks]:
    """Of all modules, their parameters, the optimizer, and of modules in general."""
    found: list[Hooks] = []
    for path, module in model.named_modules():
        where = f"model.{path} ({type(module).__name__})" if path else f"model ({type(module).__name__})"
        found += [
            Hooks(f"{_words(name)} of {where}", each) for name, each in vars(module).items() if _holds(name, each)
        ]
    for name, parameter in model.named_parameters():
        for kind in ("_backward_hooks", "_post_accumulate_grad_hooks"):
            registered = getattr(parameter, kind, None)
            if registered is not None:
                found.append(Hooks(f"{_words(kind)} of parameter {name}", registered))
    found += [
        Hooks(f"{_words(name)} of the optimizer", each) for name, each in vars(optimizer).items() if _holds(name, each)
    ]
    everywhere = vars(torch.nn.modules.module)
    found += [Hooks(f"{_words(name)} of all modules", each) for name, each in everywhere.items() if _holds(name, each)]
    return found


def _holds(name: str, value: object) -> bool:
    return name.endswith("_hooks") and isinstance(value, dict)


def _words(name: str) -> str:
    return name.strip("_").replace("_", " ")


def state(model: nn.Module) -> dict[str, int]:
    """Name -> bytes of every parameter and buffer."""
    named = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    return {name: tensor.nbytes for name, tensor in named}


def tensors_in(thing: object, depth: int = 4) -> Iterator[torch.Tensor]:
    """Tensors within nested containers and plain objects."""
    if isinstance(thing, torch.Tensor):
        yield thing
    elif depth > 0:
        inner: Any = ()
        if isinstance(thing, dict):
            inner = list(thing.values())
        elif isinstance(thing, list | tuple | set | deque):
            inner = list(thing)
        elif isinstance(getattr(thing, "__dict__", None), dict) and not isinstance(thing, type):
            inner = list(vars(thing).values())
        for each in inner:
            yield from tensors_in(each, depth - 1)


def graph_nodes(tensor: torch.Tensor) -> int:
    """Nodes of the autograd graph behind a tensor, up to a bound."""
    seen: set[Any] = set()
    waiting = [tensor.grad_fn]
    while waiting and len(seen) < _MOST_NODES:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            waiting += [following for following, _ in node.next_functions]
    return len(seen)


def object_bytes(thing: Any, depth: int = 3) -> int:
    """Of Python's objects in a thing and what it holds, roughly: enough to tell a large one from a small one."""
    if type(thing) is dict:
        inside: Iterable[Any] = thing.values()
    elif type(thing) in (list, tuple, set, deque):
        inside = thing
    else:
        inside = getattr(thing, "__dict__", {}).values() if not isinstance(thing, type) else ()
    return sys.getsizeof(thing, 0) + (sum(object_bytes(one, depth - 1) for one in inside) if depth else 0)
