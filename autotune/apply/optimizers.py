"""An optimizer in a chosen implementation: for-loop, foreach or fused. The mathematics are the same."""

import inspect
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import torch

from autotune.apply.unsupported import Unsupported
from autotune.model import OptimizerKind

OptimizerT = TypeVar("OptimizerT", bound=torch.optim.Optimizer)

_FLAGS: dict[OptimizerKind, dict[str, bool]] = {
    OptimizerKind.FOR_LOOP: {"foreach": False, "fused": False},
    OptimizerKind.FOREACH: {"foreach": True, "fused": False},
    OptimizerKind.FUSED: {"foreach": False, "fused": True},
}
_NEEDED = {OptimizerKind.FOR_LOOP: "foreach", OptimizerKind.FOREACH: "foreach", OptimizerKind.FUSED: "fused"}


def make(cls: type[OptimizerT], params: Iterable[Any], options: Mapping[str, Any], kind: OptimizerKind) -> OptimizerT:
    """``cls(params, **options)`` in this implementation.

    Raises:
        Unsupported: the class has no such implementation.
    """
    return cls(params, **{**options, **_flags(cls, kind)})


def remake(optimizer: OptimizerT, kind: OptimizerKind) -> OptimizerT:
    """The same optimizer, made anew in this implementation; itself for the default.

    Raises:
        Unsupported: it has taken steps, carries something that its class would not make again, or its class has no such
            implementation.
    """
    if kind is OptimizerKind.DEFAULT:
        return optimizer
    cls = type(optimizer)
    flags = _flags(cls, kind)
    if any(float(state.get("step", 1)) > 0 for state in optimizer.state.values()):
        raise Unsupported(f"the {cls.__name__} has taken steps; its implementation is chosen before the first")
    taken = _parameters(cls)
    options = {name: value for name, value in optimizer.defaults.items() if name in taken}
    if missing := sorted(taken - options.keys() - {"params"}):
        raise Unsupported(
            f"{cls.__name__} cannot be made anew: it does not tell what it was given for {', '.join(missing)}"
        )
    made = make(cls, [_group(group, flags) for group in optimizer.param_groups], options, kind)
    extra = sorted(name for name in vars(optimizer).keys() - vars(made).keys() if not name.startswith("_"))
    if extra:
        raise Unsupported(f"{cls.__name__} cannot be made anew: {', '.join(extra)} was added to it after it was made")
    if any(getattr(optimizer, hooks, None) for hooks in ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")):
        raise Unsupported(f"{cls.__name__} cannot be made anew: hooks were added to its step")
    return made


def _flags(cls: type[torch.optim.Optimizer], kind: OptimizerKind) -> dict[str, bool]:
    """The arguments that choose the implementation, as far as the class knows them."""
    if kind is OptimizerKind.DEFAULT:
        return {}
    taken = _parameters(cls)
    if _NEEDED[kind] not in taken:
        raise Unsupported(f"{cls.__name__} has no choice of a {kind.value} implementation")
    return {name: value for name, value in _FLAGS[kind].items() if name in taken}


def _parameters(cls: type) -> set[str]:
    """Names that the constructor takes; ``**kwargs`` stands for those of the class above."""
    names: set[str] = set()
    for owner in cls.__mro__:
        if "__init__" in vars(owner):
            parameters = list(inspect.signature(vars(owner)["__init__"]).parameters.values())[1:]
            names |= {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
            if not any(p.kind is p.VAR_KEYWORD for p in parameters):
                break
    return names


def _group(group: dict[str, Any], flags: dict[str, bool]) -> dict[str, Any]:
    """A parameter group with all its own options; names of parameters go in as they came."""
    made = {**group, "params": list(group["params"]), **flags}
    names = made.pop("param_names", None)
    if names is not None:
        made["params"] = list(zip(names, made["params"], strict=True))
    return made
