"""``autotune export``: a recommendation in the words of other frameworks."""

import json as jsonlib
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autotune.cli.options import Json, optional
from autotune.errors import UsageError
from autotune.export import Exported, Recommendation, Target
from autotune.export import export as express

if TYPE_CHECKING:  # pydantic is loaded when a file is read, and not for --help
    from autotune.report.fields import Document

_File = Annotated[Path, typer.Argument(metavar="FILE", help="What autotune search wrote.")]
_To = Annotated[Target, optional("--to", help="Framework that is to read it.")]
_Output = Annotated[Path | None, optional(metavar="PATH", help="File to write. Default: text on stdout.")]
_Merge = Annotated[
    Path | None, optional(metavar="PATH", help="With --to deepspeed: your own file, whose other keys are kept.")
]
_Force = Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")]


def export(
    to: _To,
    file: _File = Path("autotune.json"),
    output: _Output = None,
    merge: _Merge = None,
    force: _Force = False,
    json: Json = False,
) -> None:
    """Write a recommendation in the words of another framework."""
    from autotune.cli.console import Screen
    from autotune.cli.write import check_writable, write_whole

    if output is not None:
        _check_output(output, to, replaces=force or _is_same(output, merge))
        check_writable(output)
    exported = express(_recommendation(file), to, merge=None if merge is None else _own_configuration(merge))
    screen = Screen(stderr=True)
    for note in exported.notes:
        screen.say(f"note: {note}")
    if output is not None:
        write_whole(output, exported.file_text + "\n")
    if json:
        Screen(stderr=False).say(jsonlib.dumps(_facts(exported, output), indent=2))
    elif output is None:
        Screen(stderr=False).say(exported.text)
    else:
        Screen(stderr=False).say(f"wrote {output}")


def _facts(exported: Exported, output: Path | None) -> dict[str, Any]:
    return {
        "target": exported.target.value,
        "output": None if output is None else str(output),
        "text": exported.text if output is None else exported.file_text,
        "notes": [{"about": note.about, "value": note.value, "advice": note.advice} for note in exported.notes],
    }


def _recommendation(file: Path) -> Recommendation:
    from autotune.report.document import settings_of

    content = _document(file)
    settings = settings_of(content)
    _check_environment(content.environment, settings.environment)
    return Recommendation(
        settings=settings,
        micro_batch=content.batch.micro_batch,
        eval_batch=content.evaluation.max_batch if content.evaluation else None,
        world=content.batch.world,
        device=content.machine.device,
        environment=content.environment,
    )


def _check_environment(given: Mapping[str, str], asked: Mapping[str, str]) -> None:
    """An export is run by a shell, a variable may do anything to a program, and the file may come from anybody.

    Raises:
        UsageError: there is a variable that the settings do not ask for.
    """
    wrong = next((name for name, value in given.items() if asked.get(name) != value), None)
    if wrong is not None:
        raise UsageError(
            f"environment.{wrong[:60]} in the recommendation is not what its settings ask for",
            detail=f"they ask for: {', '.join(asked) or 'no variable'}",
            hint="take that variable out of the file, or write it again: autotune search MODEL --output autotune.json",
        )


def _document(file: Path) -> "Document":
    from autotune.recommended.file import read_recommendation

    try:
        return read_recommendation(file)
    except UsageError as error:
        if not error.detail:  # it says itself what it is instead
            raise
        raise UsageError(  # the hint was to write the file anew: not to be said of one that may be another's
            f"{file} is not a recommendation of autotune",
            detail=error.detail,
            hint="give the file that autotune search wrote, which is autotune.json if --output did not name another",
        ) from error


def _own_configuration(merge: Path) -> dict[str, Any]:
    from autotune.recommended.file import text_of

    hint = "give --merge the JSON file that DeepSpeed reads, without comments"
    try:
        content = jsonlib.loads(text_of(merge, hint=hint))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{merge} is not JSON: {error}", hint=hint) from error
    if not isinstance(content, dict):
        raise UsageError(f"{merge} holds a {type(content).__name__}, and not a configuration", hint=hint)
    return content


def _check_output(output: Path, to: Target, *, replaces: bool) -> None:
    """See that the file may be written, and that its reader will take it for what it is."""
    if output.is_file() and not replaces:
        keep = f"keep its other keys with --merge {shlex.quote(str(output))}, or " if to is Target.DEEPSPEED else ""
        raise UsageError(f"{output} exists already", hint=f"{keep}name another file, or overwrite it with --force")
    if to is Target.HYDRA and output.suffix != ".yaml":
        raise UsageError(
            f"Hydra reads .yaml files only, and not {output.name}", hint="--output conf/autotune/recommended.yaml"
        )
    if to is Target.ACCELERATE and output.suffix == ".json":
        raise UsageError(f"accelerate would read {output.name} as JSON", hint="--output accelerate.yaml")


def _is_same(output: Path, merge: Path | None) -> bool:
    """Whether a file is merged into itself, so that nothing of it is lost."""
    return merge is not None and merge.exists() and output.exists() and output.samefile(merge)
