"""What is asked of a check, and the workload it is of: the one that was given, or else the one that the file names."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypedDict

from autotune.arguments import texts
from autotune.errors import UsageError
from autotune.model import SearchRecord, Source
from autotune.ports import SearchObserver
from autotune.recommended.reference import source_again
from autotune.report.fields import Document
from autotune.workload.command import parse_command
from autotune.workload.source import parse_source


class CheckOptions(TypedDict, total=False):
    """What may be asked of a check beside its file."""

    script_args: Sequence[str] | None
    """Of the workload's file; default: as the search had them."""
    templates: Sequence[str]
    """How a command given here is told settings, as ``NAME=TEMPLATE``."""
    device: str | None
    """Default: that of the search, or the kind of device that the file was made for."""
    memory_limit: str | int | None
    """Default: the limit that the search had, if any."""
    at: str
    """``recommended``: the batch that will be trained; ``max``: the largest that was certified."""
    probe: bool
    """False: only compare."""
    timeout_s: float | None
    """Wall limit of the probe, seconds; default: as in the search."""
    device_wait_s: float | None
    """How long probes of other searches on the device are waited for, seconds; default: 600."""
    storage: str | os.PathLike[str] | None
    """Ledger; keeps the probe as a search of its own."""
    observer: SearchObserver | None
    """Is told of the probe; default: the ``autotune`` logger."""


def refuse_unknown(options: CheckOptions) -> None:
    """Refuse what Python would, were the options written out.

    Raises:
        TypeError: there is no such option.
    """
    unknown = sorted(options.keys() - CheckOptions.__annotations__.keys())
    if unknown:
        raise TypeError(f"check() got an unexpected keyword argument {unknown[0]!r}")


def source_to_check(
    content: Document,
    file: Path,
    ref: str | None,
    command: Sequence[str],
    recorded: SearchRecord | None,
    options: CheckOptions,
) -> tuple[Source, tuple[str, ...]]:
    """The workload of a check, and the words with which a command line gives it, device and limit, for hints.

    Args:
        content: of the file.
        file: where it lies.
        ref: of a file or module that was given; None = none was.
        command: words of a training command that was given; empty = none was.
        recorded: the search that made the file, where the ledger knows it.
        options: of the check.

    Raises:
        UsageError: it is not there, or may not be run because a file says so.
    """
    script_args, templates = options.get("script_args"), texts("templates", options.get("templates") or ())
    script_args = None if script_args is None else texts("script_args", script_args)
    told = (("--device", options.get("device")), ("--memory-limit", options.get("memory_limit")))
    words = tuple(word for name, value in told if value is not None for word in (name, str(value)))
    behind = ("--", *script_args) if script_args else ()
    if command:
        sets = [word for template in templates for word in ("--set", template)]
        return parse_command(command, templates, Path.cwd()), (*words, *sets, "--", *command)
    if templates:
        raise UsageError(
            f"--set {templates[0]!r} is for training commands, and none was given",
            hint="give the command behind --, or leave --set out: the file's own command has its templates",
        )
    if ref is not None:
        known = content.asked.script_args if content.asked else ()
        return parse_source(ref, known if script_args is None else script_args, Path.cwd()), (*words, ref, *behind)
    source = source_again(content, file, Path.cwd(), recorded)
    if script_args is not None:
        source = replace(source, script_args=script_args)
    return source, (*words, *behind)
