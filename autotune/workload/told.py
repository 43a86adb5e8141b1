"""Functions of a workload that want to know which rank they run in, told it."""

from dataclasses import replace
from functools import partial
from typing import Any

from autotune.workload.parts import FORMS, RANKS, Parts, asked_of_ranks


def takes_rank(parts: Parts, *names: str) -> bool:
    """Whether one of these functions wants to know."""
    functions = (getattr(parts, name) for name in names)
    return any(function is not None and asked_of_ranks(function) for function in functions)


def told(parts: Parts, rank: int, world_size: int) -> Parts:
    """The same functions, with rank and number of ranks given to those that take them."""
    values = dict(zip(RANKS, (rank, world_size), strict=True))
    changed: dict[str, Any] = {}
    for name in FORMS:
        function = getattr(parts, name)
        if function is not None and (wanted := asked_of_ranks(function)):
            changed[name] = partial(function, **{each: values[each] for each in wanted})
    return replace(parts, **changed) if changed else parts
