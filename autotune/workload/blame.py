"""Finding the one object within a function or module that cannot leave the process. Parent side."""

import functools
import io
from collections.abc import Callable, Iterator, Mapping
from threading import Lock, RLock
from types import FunctionType, GeneratorType, MethodType

from autotune.workload.references import references
from autotune.workload.seen import is_module, kind_of

_WORDS: dict[type, str] = {
    io.IOBase: "an open file",
    GeneratorType: "a generator",
    type(Lock()): "a lock",
    type(RLock()): "a lock",
}


def find_culprit(part: object, can_leave: Callable[[object], bool]) -> tuple[str, str]:
    """Follow what a part refers to down to the object that cannot be pickled.

    Returns:
        (how the part reaches it, such as ``self.handle`` or ``cache['x']``; empty if it is the part itself,
        what it is, in words).
    """
    where, culprit, seen = "", part, {id(part)}
    going = True
    while going:
        going = False
        for label, inner in _within(culprit, where):
            if id(inner) not in seen and not can_leave(inner):
                where, culprit, going = label, inner, True
                seen.add(id(inner))
                break
    return where, _in_words(culprit)


def _within(item: object, where: str) -> Iterator[tuple[str, object]]:
    if isinstance(item, FunctionType):
        yield from references(item)
    elif isinstance(item, MethodType):
        yield "self", item.__self__
        yield where, item.__func__
    elif isinstance(item, functools.partial):
        yield from ((f"argument {number}", value) for number, value in enumerate(item.args, 1))
        yield from item.keywords.items()
        yield where, item.func
    elif isinstance(item, Mapping):
        yield from ((f"{where}[{key!r}]", value) for key, value in item.items())
    elif isinstance(item, list | tuple | set | frozenset):
        yield from ((f"{where}[{number}]", value) for number, value in enumerate(item))
    elif isinstance(item, type):
        own = [entry for entry in vars(item).items() if isinstance(entry[1], FunctionType) or entry[0][:2] != "__"]
        yield from ((f"{item.__qualname__}.{name}", value) for name, value in own)
    else:
        attributes = getattr(item, "__dict__", {})
        if is_module(item):
            attributes = {**attributes["_modules"], **attributes}
        base = where or ("model" if is_module(item) else "self")
        yield from ((f"{base}.{name}", value) for name, value in attributes.items())


def _in_words(item: object) -> str:
    for known, words in _WORDS.items():
        if isinstance(item, known):
            return words
    return f"{kind_of(item)} of {type(item).__module__}"
