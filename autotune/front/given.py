"""The workload that was given: a reference, live objects or a training command, and the plan for it."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from autotune.arguments import texts
from autotune.errors import UsageError
from autotune.model import Plan, Source
from autotune.planning import PlanOptions, make_plan
from autotune.workload.command import parse_command
from autotune.workload.source import parse_source


def plan_of(
    ref: str, script_args: Sequence[str], command: Sequence[str], templates: Sequence[str], options: PlanOptions
) -> Plan:
    """See ``api.plan``."""
    command, templates = texts("command", command), texts("templates", templates)
    if command:
        return make_plan(parse_command(command, templates, Path.cwd()), **options)
    if not isinstance(ref, str | os.PathLike):
        raise UsageError(
            f"{ref!r} names no file and no module",
            hint="write FILE.py[:NAME] or pkg.mod[:NAME]; functions and live models are for find_max_batch()",
        )
    if templates:
        raise UsageError(
            f"--set {templates[0]!r} is for training commands, and {ref} is none",
            hint="give the command behind --: autotune search -- python train.py --batch-size {batch}",
        )
    return make_plan(parse_source(os.fspath(ref), texts("script_args", script_args), Path.cwd()), **options)


def refuse_unplanned(plan: object) -> None:
    """Refuse what is no plan: the file that one is made of, above all.

    Raises:
        UsageError: it is something else.
    """
    if not isinstance(plan, Plan):
        raise UsageError(
            f"{plan!r} is no plan",
            hint='make one: api.plan("model.py"); find_max_batch() takes files, functions and live models',
        )


def source_of(workload: object, functions: dict[str, Any], path: Path) -> Source:
    """The workload as probe processes will load it: a reference as it is, live objects pickled into ``path``."""
    command = command_of(workload)
    if not isinstance(workload, str | os.PathLike) and not command:
        from autotune.workload.live import pack

        return pack(workload, path=path, **functions)
    given = [name for name, function in functions.items() if function is not None]
    if given:
        raise UsageError(
            f"{', '.join(given)} given beside {workload!r}",
            hint="define them in that file, or pass the model or its maker instead of a path or command",
        )
    if isinstance(workload, str | os.PathLike):
        return parse_source(os.fspath(workload), (), Path.cwd())
    return parse_command(command, (), Path.cwd())


def command_of(workload: object) -> tuple[str, ...]:
    """The words of a training command; empty if it is none.

    Raises:
        UsageError: it has no words, or one that is no text.
    """
    if not isinstance(workload, list | tuple):
        return ()
    wrong = [word for word in workload if not isinstance(word, str)]
    if wrong or not workload:
        raise UsageError(
            f"{wrong[0]!r} in the training command is no text" if wrong else "the training command has no words",
            hint='give all of its words as text: ["python", "train.py", "--batch-size", "{batch}"]',
        )
    return tuple(workload)
