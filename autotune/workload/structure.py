"""Hash of live objects by structure, equal in every process as long as code, constants and shapes are equal. Parent side.

Pickles cannot serve: their bytes depend on identity, on the order of sets and on hash seeds. Here code is hashed by its
instructions, sets by their sorted elements, tensors by shape and dtype, and what is installed by name alone. Whatever
has an identity (functions, classes, objects, lists, tensors) is numbered when first met and written once, so cycles
end, call chains may be long, and weights that are tied differ from weights that are merely alike.
"""

import hashlib
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from enum import Enum
from functools import partial
from pathlib import Path
from types import (
    BuiltinFunctionType,
    CodeType,
    EllipsisType,
    FunctionType,
    MappingProxyType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import TypeGuard

from autotune.workload.places import is_library
from autotune.workload.references import imported_names, local_source, references
from autotune.workload.seen import is_module, is_tensor, shown, tensor_facts

_DEPTH = 8
"""Nested plain objects followed before only their class counts; the caller's object graph may have no end."""

_PRIMITIVES = (type(None), bool, int, float, complex, str, bytes, EllipsisType)
_COMPILED = (BuiltinFunctionType, MethodDescriptorType, WrapperDescriptorType, MethodWrapperType)
_BOOKKEEPING = {
    "__module__",
    "__doc__",
    "__dict__",
    "__weakref__",
    "__annotations__",
    "__annotate_func__",
    "__annotations_cache__",
    "__abstractmethods__",
    "_abc_impl",
    "__firstlineno__",
    "__static_attributes__",
}
"""Class entries that are no code; some of them have no stable order."""


def structural_hash(members: Mapping[str, object]) -> str:
    """SHA-256 (hex) of named functions and objects and of everything of the user's that they refer to."""
    return _Walk().run(members)


class _Walk:
    """One breadth-first traversal."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._kept: list[object] = []
        """Numbered objects, kept alive so that an id stays theirs."""
        self._waiting: deque[tuple[object, int]] = deque()

    def run(self, members: Mapping[str, object]) -> str:
        """Hash of the members and of all that is reached from them."""
        total = hashlib.sha256()
        for name, member in sorted(members.items()):
            total.update(_sha(name, self._token(member, 0)))
        while self._waiting:
            item, depth = self._waiting.popleft()
            total.update(_sha(_class_name(type(item)), *self._contents(item, depth)))
        return total.hexdigest()

    def _token(self, item: object, depth: int) -> bytes:
        """What stands for a value where it is referred to: itself if it has no identity of its own, else a number.

        ``depth`` counts the plain objects around it.
        """
        if isinstance(item, Enum):
            return _sha("enum", self._token(type(item), depth), str(item.name), self._token(item.value, depth))
        if isinstance(item, _PRIMITIVES):
            return _sha(type(item).__name__, repr(item))
        if isinstance(item, _COMPILED):
            return _sha("library", f"{getattr(item, '__module__', None)}.{item.__qualname__}")
        if _is_named(item) and is_library(item.__module__):
            return _sha("library", f"{item.__module__}.{item.__qualname__}")
        if (text := shown(item)) is not None:
            return _sha(_class_name(type(item)), text)
        inline = self._inline(item, depth)
        if inline is not None:
            return _sha(_class_name(type(item)), *inline)
        return self._number(item, depth)

    def _number(self, item: object, depth: int) -> bytes:
        if id(item) not in self._numbers:
            self._numbers[id(item)] = len(self._kept)
            self._kept.append(item)
            self._waiting.append((item, depth))
        return b"#%d" % self._numbers[id(item)]

    def _inline(self, item: object, depth: int) -> Iterator[str | bytes] | None:
        """Parts of values without an identity; None for the others."""
        if type(item) is tuple:
            return self._tokens(item, depth)
        if isinstance(item, frozenset):
            return self._tokens(sorted(item, key=_stable_key), depth)
        if isinstance(item, CodeType):
            return self._code(item, depth)
        if isinstance(item, MethodType):
            return self._tokens((item.__func__, item.__self__), depth)
        if isinstance(item, partial):
            return self._tokens((item.func, item.args, item.keywords), depth)
        if isinstance(item, property):
            return self._tokens((item.fget, item.fset, item.fdel), depth)
        if isinstance(item, staticmethod | classmethod):
            return self._tokens((item.__func__,), depth)
        return None

    def _tokens(self, items: tuple[object, ...] | list[object], depth: int) -> Iterator[str | bytes]:
        for item in items:
            yield self._token(item, depth)

    def _contents(self, item: object, depth: int) -> Iterator[str | bytes]:
        if isinstance(item, FunctionType):
            yield from self._function(item, depth)
        elif isinstance(item, type):
            yield from self._class(item, depth)
        elif isinstance(item, ModuleType):
            yield from self._source(item, depth)
        elif is_tensor(item):
            yield tensor_facts(item)
        else:
            yield from self._object(item, depth)

    def _object(self, item: object, depth: int) -> Iterator[str | bytes]:
        yield self._token(type(item), depth)
        if isinstance(item, dict | MappingProxyType):
            for key, value in sorted(item.items(), key=lambda entry: _stable_key(entry[0])):
                yield from self._tokens((key, value), depth)
        elif isinstance(item, list | tuple) and all(type(element) in _PRIMITIVES for element in item):
            yield repr(tuple(item))
        elif isinstance(item, list | tuple):
            yield from self._tokens(list(item), depth)
        elif isinstance(item, set):
            yield from self._tokens(sorted(item, key=_stable_key), depth)
        inner = depth if is_module(item) else depth + 1
        if inner <= _DEPTH:
            attributes = _module_attributes(item) if is_module(item) else _attributes(item)
            for name, value in sorted(attributes.items()):
                yield name
                yield self._token(value, inner)

    def _code(self, code: CodeType, depth: int) -> Iterator[str | bytes]:
        yield code.co_code
        yield code.co_exceptiontable
        yield repr((code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags))
        yield repr((code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars))
        yield from self._tokens(code.co_consts, depth)

    def _function(self, function: FunctionType, depth: int) -> Iterator[str | bytes]:
        yield self._token(function.__code__, depth)
        for name, value in references(function):
            yield name
            yield self._token(value, depth)
        for name in sorted(imported_names(function.__code__)):
            yield name
            yield local_source(name)
        for name, value in sorted(function.__dict__.items()):
            yield name
            yield self._token(value, depth)

    def _class(self, cls: type, depth: int) -> Iterator[str | bytes]:
        yield cls.__qualname__
        yield from self._tokens(cls.__bases__, depth)
        for name, value in sorted(vars(cls).items()):
            if name not in _BOOKKEEPING:
                yield name
                yield self._token(value, depth)

    def _source(self, module: ModuleType, depth: int) -> Iterator[str | bytes]:
        """A module used as an object: all its source, since any attribute may be read, and what it took from others."""
        yield module.__name__
        file = getattr(module, "__file__", None)
        if module.__name__ == "__main__" or file is None or is_library(module.__name__):
            return
        yield Path(file).read_bytes() if Path(file).is_file() else b""
        for name, value in sorted(vars(module).items()):
            foreign = isinstance(value, FunctionType | type) and value.__module__ != module.__name__
            if foreign or isinstance(value, ModuleType):
                yield name
                yield self._token(value, depth)


def _is_named(item: object) -> TypeGuard[FunctionType | type]:
    """True for classes and functions that their module and name identify."""
    return isinstance(item, type) or (isinstance(item, FunctionType) and "<locals>" not in item.__qualname__)


def _attributes(item: object) -> dict[str, object]:
    """Instance attributes and slots, without calling code of the object's class."""
    try:
        found = dict(object.__getattribute__(item, "__dict__"))
    except AttributeError:  # no instance dictionary
        found = {}
    for cls in type(item).__mro__:
        slots = [entry for entry in vars(cls).items() if "__slots__" in vars(cls)]
        for name, slot in slots:
            if isinstance(slot, MemberDescriptorType):
                with suppress(AttributeError):  # the slot is empty
                    found[name] = slot.__get__(item)
    return found


def _module_attributes(module: object) -> dict[str, object]:
    """Without the mode, which a probe sets, and the keys of hooks, which count all hooks of the process."""
    found = {name: value for name, value in _attributes(module).items() if name != "training"}
    for name, value in found.items():
        if "_hooks" in name and isinstance(value, dict):
            found[name] = list(value.values())
    return found


def _class_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _stable_key(element: object) -> tuple[str, str]:
    """Order that depends on neither identity nor hash seed."""
    text = repr(element) if isinstance(element, _PRIMITIVES) else str(getattr(element, "__qualname__", ""))
    return _class_name(type(element)), text


def _sha(*parts: str | bytes) -> bytes:
    """Hash of a sequence of parts, each with its length, so that no two sequences read alike."""
    total = hashlib.sha256()
    for part in parts:
        data = part.encode(errors="surrogatepass") if isinstance(part, str) else part
        total.update(len(data).to_bytes(8, "big") + data)
    return total.digest()
