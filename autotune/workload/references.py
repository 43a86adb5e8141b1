"""What a function refers to beyond its arguments: closure, defaults and globals. Parent side."""

import dis
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType

from autotune.workload.places import is_installed

EMPTY = object()
"""Stands for a closure variable that has no value yet."""

_READS = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"}


def references(function: FunctionType) -> Iterator[tuple[str, object]]:
    """Yield (name, value) of every closure variable, default and global that the function's code reads, in that order.

    Names that are no globals (builtins, or defined later) are left out.
    """
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # the cell is still empty
            yield name, EMPTY
    for number, value in enumerate(function.__defaults__ or ()):
        yield f"default {number}", value
    for name, value in sorted((function.__kwdefaults__ or {}).items()):
        yield f"default of {name}", value
    for name in sorted(global_names(function.__code__)):
        if name in function.__globals__:
            yield name, function.__globals__[name]


def global_names(code: CodeType) -> set[str]:
    """Names that a code object and the functions within it read from the module."""
    return _operands(code, _READS)


def imported_names(code: CodeType) -> set[str]:
    """Modules that a code object and the functions within it import when they run."""
    return _operands(code, {"IMPORT_NAME"})


def _operands(code: CodeType, operations: set[str]) -> set[str]:
    names = {str(step.argval) for step in dis.get_instructions(code) if step.opname in operations}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _operands(constant, operations)
    return names


def local_source(name: str) -> bytes:
    """Source of a module that a function imports when it runs, found without importing it; empty unless it is the user's."""
    top, *rest = name.split(".")
    if top in sys.modules:
        spec = getattr(sys.modules[top], "__spec__", None)
    else:
        spec = importlib.util.find_spec(top) if top else None
    if spec is None or not spec.origin or is_installed(spec.origin):
        return b""
    file = Path(spec.origin)
    if rest:
        stem = file.parent.joinpath(*rest)
        file = stem / "__init__.py" if stem.is_dir() else stem.with_suffix(".py")
    return file.read_bytes() if file.is_file() else b""
