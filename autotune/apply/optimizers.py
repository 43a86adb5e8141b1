"""An optimizer in a chosen implementation: for-loop, foreach or fused. The mathematics are the same."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import torch

from autotune.apply.ranks import is_sharded
from autotune.apply.unsupported import Unsupported
from autotune.model import OptimizerKind

OptimizerT = TypeVar("OptimizerT", bound=torch.optim.Optimizer)

CHOSEN_BY = {OptimizerKind.FOR_LOOP: "foreach", OptimizerKind.FOREACH: "foreach", OptimizerKind.FUSED: "fused"}
"""Argument of PyTorch's optimizers that an implementation needs."""

Maker = Callable[[type[Any], Iterable[Any], dict[str, Any]], Any]
"""(class, parameters or groups of them, options) -> an optimizer that works as one of the class does."""


def make(
    cls: type[OptimizerT],
    params: Iterable[Any],
    options: Mapping[str, Any],
    kind: OptimizerKind,
    maker: Maker | None = None,
) -> OptimizerT:
    """``cls(params, **options)`` in this implementation; ``maker``: what is called instead of the class.

    Raises:
        Unsupported: the class has no such implementation.
    """
    flags = _flags(cls, kind)
    if kind is not OptimizerKind.FOR_LOOP:  # left to itself PyTorch takes foreach where it can
        params = _alike(params)
    made: OptimizerT = (maker or _plainly)(cls, params, {**options, **flags})
    return made


def _plainly(cls: type[Any], params: Iterable[Any], options: dict[str, Any]) -> Any:
    return cls(params, **options)


def remake(optimizer: OptimizerT, kind: OptimizerKind, maker: Maker | None = None) -> OptimizerT:
    """The same optimizer, made anew in this implementation; itself for the default, unless a ``maker`` is to make it, with
    shards and plain tensors in groups of their own.

    Raises:
        Unsupported: it has taken steps, carries something that its class would not make again, or its class has no such
            implementation.
    """
    if kind is OptimizerKind.DEFAULT and maker is None:
        if not optimizer.state:
            optimizer.param_groups[:] = _alike(optimizer.param_groups)
        return optimizer
    cls = type(optimizer)
    flags = _flags(cls, kind)
    if any(float(state.get("step", 1)) > 0 for state in optimizer.state.values()):
        raise Unsupported(f"the {cls.__name__} has taken steps; its implementation is chosen before the first")
    taken = parameters_of(cls)
    options = {name: value for name, value in optimizer.defaults.items() if name in taken}
    if missing := sorted(taken - options.keys() - {"params"}):
        raise Unsupported(
            f"{cls.__name__} cannot be made anew: it does not tell what it was given for {', '.join(missing)}"
        )
    groups = [_group(group, flags) for group in optimizer.param_groups]
    made = make(cls, groups, options, kind)
    extra = sorted(name for name in vars(optimizer).keys() - vars(made).keys() if not name.startswith("_"))
    if extra:
        raise Unsupported(f"{cls.__name__} cannot be made anew: {', '.join(extra)} was added to it after it was made")
    if any(getattr(optimizer, hooks, None) for hooks in ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")):
        raise Unsupported(f"{cls.__name__} cannot be made anew: hooks were added to its step")
    return made if maker is None else make(cls, groups, options, kind, maker)


def _flags(cls: type[torch.optim.Optimizer], kind: OptimizerKind) -> dict[str, bool]:
    """The arguments that choose the implementation, as far as the class knows them."""
    if kind is OptimizerKind.DEFAULT:
        return {}
    taken = parameters_of(cls)
    if CHOSEN_BY[kind] not in taken:
        raise Unsupported(f"{cls.__name__} has no choice of a {kind.value} implementation")
    flags = {"foreach": kind is OptimizerKind.FOREACH, "fused": kind is OptimizerKind.FUSED}
    return {name: value for name, value in flags.items() if name in taken}


def _alike(params: Iterable[Any]) -> list[Any]:
    """Groups that hold either shards or plain tensors: one kernel takes no mixture of the two (tensor parallel)."""
    held = list(params)
    groups = held if held and isinstance(held[0], dict) else [{"params": held}]
    parts: list[dict[str, Any]] = []
    for group in groups:
        given = list(group["params"])
        names = group.get("param_names", ())
        for side in (True, False):
            chosen = [at for at, one in enumerate(given) if is_sharded(_tensor(one)) is side]
            if chosen:
                part = {**group, "params": [given[at] for at in chosen]}
                parts.append({**part, "param_names": [names[at] for at in chosen]} if names else part)
    return parts if len(parts) > len(groups) else held


def _tensor(given: Any) -> Any:
    """Of a parameter that may come with its name."""
    return given[1] if isinstance(given, tuple) else given


def parameters_of(cls: type) -> set[str]:
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


def needs_closure(optimizer: torch.optim.Optimizer) -> bool:
    """Whether its step calls the loss itself, several times (LBFGS): then nobody else can take the step."""
    try:
        closure = inspect.signature(optimizer.step).parameters.get("closure")
    except ValueError:  # not written in Python; those of PyTorch that need one are
        return False
    return closure is not None and closure.default is inspect.Parameter.empty
