"""``autotune init``: a commented model file to fill in."""

import os
import shlex
from pathlib import Path
from typing import Annotated

import typer

from autotune.errors import AutotuneError, EnvironmentTrouble, UsageError

_Path = Annotated[Path, typer.Argument(metavar="PATH", help="File to write.")]
_Force = Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")]


def init(path: _Path = Path("model.py"), force: _Force = False) -> None:
    """Write a commented model file to fill in."""
    from autotune.cli.console import Screen
    from autotune.cli.write import not_for_all
    from autotune.workload.template import MODEL_FILE

    if path.suffix != ".py" and not path.is_dir():
        name = shlex.quote(str(path.with_suffix(".py")))
        raise UsageError(f"{path} is no name for a Python file", hint=f"autotune init {name}")
    try:
        with open(path, "w" if force else "x", encoding="utf-8", opener=not_for_all) as stream:
            stream.write(MODEL_FILE)
    except OSError as error:
        raise _refusal(path, error) from error
    name = shlex.quote(str(path))
    Screen(stderr=False).say(
        f"wrote {path}; fill in make_model and make_batch, then:\n  autotune inspect {name}\n  autotune search {name}"
    )


def _refusal(path: Path, error: OSError) -> AutotuneError:
    name, folder = shlex.quote(str(path)), shlex.quote(str(path.parent))
    if os.path.isdir(path):
        inside = shlex.quote(f"{str(path).rstrip('/')}/model.py")
        return UsageError(f"{path} is a directory", hint=f"name a file: autotune init {inside}")
    if isinstance(error, FileExistsError):
        return UsageError(
            f"{path} exists already", hint=f"name another file, or overwrite it: autotune init {name} --force"
        )
    if isinstance(error, FileNotFoundError) and not os.path.lexists(path.parent):
        return UsageError(
            f"the folder {path.parent} does not exist", hint=f"make it first: mkdir -p {folder} && autotune init {name}"
        )
    return EnvironmentTrouble(
        f"cannot write {path}: {error.strerror}", hint="name a file in a folder that exists and can be written"
    )
