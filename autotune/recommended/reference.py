"""From the text of a recommendation back to the workload it was made for. Nothing is imported or run here.

The file is data, and says which code is run. So it may only name code of its own project; what lies elsewhere, and every
training command that this ledger has not seen, is for the caller to name.
"""

import os
import shlex
from importlib.machinery import PathFinder
from pathlib import Path

from autotune.errors import UsageError
from autotune.model import SearchRecord, Source
from autotune.report.fields import Document
from autotune.workload.command import parse_command
from autotune.workload.source import locate, parse_source

_PROJECT = (".git", "pyproject.toml")
"""What lies in the folder of a project."""


def source_again(content: Document, path: Path, directory: Path, recorded: SearchRecord | None) -> Source:
    """The workload that the file names.

    A file or module is looked for in the folder of ``path``, in those above it up to that of the project, then in the
    working directory: the first in which it is there becomes the workload's working directory.

    Args:
        content: of the file.
        path: where it lies.
        directory: the caller's working directory.
        recorded: the search that made the file, where the ledger knows it.

    Raises:
        UsageError: it is not there, lies outside the project, or is a command that this ledger did not run.
    """
    asked = content.asked
    if asked is not None and asked.command:
        return _command(asked.command, asked.templates, path, directory, recorded)
    if recorded is not None and recorded.plan.source.command:  # an older file of a command, of this ledger
        source = recorded.plan.source
        return _command(source.command, dict(source.templates), path, directory, recorded)
    if content.workload.command is not None:
        raise _unknown_command(content.workload.ref, path)
    ref, script_args = content.workload.ref, asked.script_args if asked else ()
    if asked is None and recorded is not None:
        script_args = recorded.plan.source.script_args
    folders = list(dict.fromkeys([*_project(path), Path(os.path.abspath(directory))]))
    home = next((folder for folder in folders if _is_there(ref, folder)), folders[-1])
    place = locate(Source(ref=ref, directory=str(home)))
    if place.file is not None and not any(place.file.is_relative_to(folder) for folder in folders):
        raise UsageError(
            f"{path} names {ref}, which lies outside of its project",
            hint=f"if that is what you train, say so: autotune check {shlex.quote(str(path))} {shlex.quote(ref)}",
        )
    try:
        return parse_source(ref, script_args, home)
    except UsageError as error:
        raise UsageError(
            f"{path} was made for {ref}, and it is not there: {error.message}",
            hint=f"say where it is: autotune check {shlex.quote(str(path))} MODEL",
        ) from error


def _project(path: Path) -> list[Path]:
    """The file's folder and those above it, up to that of its project; its folder alone if it is in none."""
    here = Path(os.path.abspath(path)).parent
    folders = [here, *here.parents]
    for number, folder in enumerate(folders):
        if any((folder / name).exists() for name in _PROJECT):
            return folders[: number + 1]
    return [here]


def _is_there(ref: str, folder: Path) -> bool:
    place = locate(Source(ref=ref, directory=str(folder)))
    if place.file is not None:
        return place.file.is_file()
    return PathFinder.find_spec(place.module.partition(".")[0], [str(folder)]) is not None


def _command(
    words: tuple[str, ...], templates: dict[str, str], path: Path, directory: Path, recorded: SearchRecord | None
) -> Source:
    ran = recorded.plan.source if recorded is not None else None
    if ran is None or (ran.command, dict(ran.templates)) != (words, templates):
        raise _unknown_command(shlex.join(words), path)
    home = Path(ran.directory) if ran.directory and Path(ran.directory).is_dir() else directory
    return parse_command(words, [f"{name}={template}" for name, template in templates.items()], home)


def _unknown_command(command: str, path: Path) -> UsageError:
    return UsageError(
        f"{path} was made for a training command, and this ledger holds no search of it: {command}",
        hint="a command is not run because a file says so. Look at it, then give it yourself: "
        f"autotune check {shlex.quote(str(path))} -- {command}",
    )
