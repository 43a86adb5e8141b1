"""Reading a workload reference as the user typed it. Parent side: nothing is imported or executed here, torch least of all."""

import difflib
import importlib.util
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path

from autotune.errors import UsageError
from autotune.model import Source

INSIDE_VARIABLE = "AUTOTUNE_INSIDE"
"""Environment variable set in every probe process, so that a search started by the user's own file while it is being
loaded can be told from one that a person started."""

_DRIVE = re.compile(r"[A-Za-z]:[\\/]")
_FORM = "write FILE.py, FILE.py:NAME, pkg.mod or pkg.mod:NAME"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What a reference points to; exactly one of ``file`` and ``module`` is set."""

    target: str
    """The reference without its NAME, as typed."""
    file: Path | None
    """Absolute path, not necessarily existing."""
    module: str
    """Dotted name; empty for a file."""
    name: str
    """NAME, possibly dotted; empty if none was given."""


def parse_source(ref: str, script_args: Sequence[str], directory: Path) -> Source:
    """Check a reference ``FILE.py[:NAME]`` or ``pkg.mod[:NAME]`` as far as that works without running it.

    Args:
        ref: as typed; kept so in the source.
        script_args: what the file shall see in ``sys.argv[1:]``.
        directory: the workload's working directory; relative files are looked for in it.

    Raises:
        UsageError: nothing is there, or it is not a Python file.
    """
    directory = Path(os.path.abspath(directory))
    source = Source(ref=ref, script_args=tuple(script_args), directory=str(directory))
    try:
        place = locate(source)
        if place.file is not None:
            _check_file(place.target, place.file, directory)
        else:
            _check_module(place.module, directory)
    except OSError as error:  # a name that is too long for the file system
        raise UsageError(f"{ref[:60]}…: {error.strerror}", hint=_FORM) from error
    return source


def locate(source: Source) -> Place:
    """Split a source's reference into file or module, and NAME.

    Raises:
        UsageError: the text has not the form of a reference.
    """
    target, name = _split(source.ref)
    directory = Path(source.directory)
    if _is_file(target, directory):
        return Place(target=target, file=Path(os.path.abspath(directory / target)), module="", name=name)
    return Place(target=target, file=None, module=target, name=name)


def _split(ref: str) -> tuple[str, str]:
    drive = _DRIVE.match(ref)
    start = 2 if drive else 0
    head, colon, name = ref[start:].rpartition(":")
    target, name = (ref[:start] + head, name) if colon else (ref, "")
    if not target.strip():
        raise UsageError(f"{ref!r} names no file and no module", hint=_FORM)
    if colon and not name:
        raise UsageError(
            f"{ref!r} ends in a colon without a NAME",
            hint=f"write {target}, or {target}:NAME with a class, function or object of that file",
        )
    if colon and not all(part.isidentifier() for part in name.split(".")):
        raise UsageError(f"{name!r} in {ref!r} is not a Python name", hint=_FORM)
    return target, name


def _is_file(target: str, directory: Path) -> bool:
    if target.endswith(".py") or "/" in target or "\\" in target:
        return True
    if not all(part.isidentifier() for part in target.split(".")):
        return True
    path = directory / target
    return path.exists() and not (path / "__init__.py").exists()


def _check_file(target: str, file: Path, directory: Path) -> None:
    if file.is_dir():
        inside = sorted(entry.name for entry in file.glob("*.py"))
        example = inside[0] if inside else "model.py"
        raise UsageError(f"{target} is a directory", hint=f"name a file in it: {Path(target) / example}")
    if not file.exists():
        raise UsageError(f"{target}: no such file in {directory}", hint=_suggest(target, file, directory))
    if file.suffix == ".ipynb":
        raise UsageError(
            f"{target} is a notebook, not a .py file",
            hint="call autotune.find_max_batch(make_model=…, make_batch=…) in the notebook itself",
        )
    if file.suffix != ".py":
        raise UsageError(f"{target} is not a .py file", hint=_FORM)
    if not os.access(file, os.R_OK):
        raise UsageError(f"{target} cannot be read (permission denied)", hint=f"chmod u+r {target}")


def _suggest(target: str, file: Path, directory: Path) -> str:
    folders = dict.fromkeys((file.parent, directory))
    known = [entry for folder in folders if folder.is_dir() for entry in sorted(folder.glob("*.py"))]
    close = _close(file.stem, known)
    if close:
        return f"did you mean {' or '.join(_relative(entry, directory) for entry in close)}?"
    return f"write a model file first: autotune init {target if target.endswith('.py') else 'model.py'}"


def _close(stem: str, files: list[Path]) -> list[Path]:
    stems = difflib.get_close_matches(stem, {file.stem for file in files}, n=3, cutoff=0.7)
    return [file for file in files if file.stem in stems]


def _relative(file: Path, directory: Path) -> str:
    return str(file.relative_to(directory)) if file.is_relative_to(directory) else str(file)


def _check_module(module: str, directory: Path) -> None:
    """Look for the topmost package only: finding deeper ones would execute it."""
    top = module.partition(".")[0]
    if top != "__main__" and PathFinder.find_spec(top, [str(directory)]) is not None:
        return
    if top == "__main__" or (top not in sys.modules and importlib.util.find_spec(top) is None):
        close = _close(module, sorted(directory.glob("*.py")))
        hint = f"did you mean {' or '.join(file.name for file in close)}?" if close else _FORM
        raise UsageError(f"{module}: neither a file in {directory} nor an importable module", hint=hint)
