"""What the user calls the thing that keeps an object alive: followed from the object up to a module, model or class."""

import gc
import os
import sys
from dataclasses import dataclass
from types import CellType, FrameType, FunctionType, ModuleType
from typing import Any

import torch

from autotune.diagnose.leaks.places import is_users
from autotune.workload.places import OWN

_DEEPEST = 12
_MOST = 400
"""Objects looked at on one level: beyond it, the way up is through something that holds everything."""


@dataclass(frozen=True, slots=True)
class Name:
    """Of what keeps something alive."""

    text: str
    """As ``KEPT of model.py``, ``model.body.history``, ``Cache.items``; empty where nothing that has a name was found."""
    rooted: bool
    """Whether the way up ends in something that lives by itself: a module, the model, the optimizer, a class."""


@dataclass(frozen=True, slots=True)
class _Step:
    text: str
    rooted: bool = False
    ends: bool = False
    fallback: str = ""


_NOWHERE = _Step("", ends=True)


class Names:
    """Names of one training's things."""

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self._known: dict[int, str] = {id(optimizer): "optimizer"}
        self._near: dict[int, str] = {}
        """Values that can be reached from the user's modules and the model in one or two steps, which is quick to know."""
        for path, module in model.named_modules():
            name = self._known[id(module)] = f"model.{path}" if path else "model"
            self._near.update((id(value), f"{name}.{each}") for each, value in vars(module).items())
        for module in [one for one in sys.modules.values() if is_users(getattr(one, "__file__", None) or "<")]:
            file = os.path.basename(module.__file__ or "")
            for name, value in list(vars(module).items()):
                self._near.setdefault(id(value), f"{name} of {file}")
                if getattr(type(value), "__module__", "") == module.__name__ or isinstance(value, type):
                    inside = getattr(value, "__dict__", {})
                    self._near.update((id(each), f"{name}.{key} of {file}") for key, each in list(inside.items()))

    def of(self, thing: object) -> Name:
        """Breadth first, so that the nearest name is found; frames and what is autotune's are no holders."""
        if id(thing) in self._near:
            return Name(self._near[id(thing)], rooted=True)
        level: list[tuple[object, str]] = [(thing, "")]
        seen = {id(thing)}
        fallback = ""
        for _ in range(_DEEPEST):
            above: list[tuple[object, str]] = []
            seen |= {id(level), id(above)}
            for pair in level:
                item, suffix = pair
                seen.add(id(pair))
                for holder in gc.get_referrers(item):
                    if id(holder) in seen or isinstance(holder, FrameType):
                        continue
                    seen.add(id(holder))
                    step = self._up(holder, item, suffix)
                    if step.rooted:
                        return Name(step.text, rooted=True)
                    fallback = fallback or step.fallback
                    if not step.ends:
                        above.append((holder, step.text))
                        seen.add(id(above[-1]))
                if len(above) > _MOST:
                    return Name(fallback, rooted=True)  # held by very much: surely not forgotten
            level = above
        return Name(fallback, rooted=False)

    def _up(self, holder: Any, item: object, suffix: str) -> _Step:
        """One step up from ``item``, of which ``suffix`` is known already."""
        if id(holder) in self._known:
            return _Step(f"{self._known[id(holder)]}{_attribute(holder, item)}{suffix}", rooted=True)
        kind = type(holder)
        if kind is dict:
            key = next((key for key, value in holder.items() if value is item), None)
            if "__name__" in holder and "__builtins__" in holder:
                file = holder.get("__file__")
                if isinstance(file, str) and file.startswith(OWN):
                    return _NOWHERE
                where = os.path.basename(file) if isinstance(file, str) else holder["__name__"]
                return _Step(f"{key}{suffix} of {where}", rooted=True)
            return _Step((f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{key!r:.40}]") + suffix)
        if isinstance(holder, type):
            return _Step(f"{holder.__qualname__}{suffix or _attribute(holder, item)}", rooted=True)
        if issubclass(kind, list | tuple | dict | set):
            return _Step(f"[...]{suffix}")
        if kind is CellType:
            return _Step(suffix)
        if kind is FunctionType:
            if holder.__code__.co_filename.startswith(OWN):
                return _NOWHERE
            variables = zip(map(id, holder.__closure__ or ()), holder.__code__.co_freevars, strict=False)
            name = dict(variables).get(id(item))
            return _Step("", fallback=f"{f'variable {name}' if name else 'default'}{suffix} of {holder.__qualname__}()")
        if isinstance(holder, ModuleType) or kind.__module__.partition(".")[0] == "autotune":
            return _NOWHERE
        if kind.__module__ == "builtins" or isinstance(holder, torch.Tensor) or "Backward" in kind.__name__:
            return _Step(suffix)
        name = f"{_attribute(holder, item)}{suffix}"
        return _Step(name, fallback=f"{kind.__qualname__}{name}")


def _attribute(holder: object, item: object) -> str:
    """``.name`` of what an object holds directly; its dict as the holder is passed over before."""
    inside = getattr(holder, "__dict__", None)
    if inside is item or inside is None:
        return ""
    return next((f".{name}" for name, value in dict(inside).items() if value is item), "")
