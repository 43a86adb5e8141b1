"""A training command with placeholders: read from a command line, and filled in for a probe or for the user. Pure.

    python train.py --batch-size {batch} --output {scratch}

``{batch}`` is the micro-batch of one device, ``{scratch}`` a folder that is removed after the run. A setting is told by a
template, ``NAME=TEMPLATE``: words that are added to the command (``precision=--amp {value}``), or a variable of its
environment (``batch=env:BATCH_SIZE``), where the setting is not left as the user has it.
"""

import difflib
import os
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from autotune.errors import UsageError
from autotune.model import Source

BATCH = "batch"
SCRATCH = "scratch"
VALUE = "value"
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
_ENVIRONMENT = "env:"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
BATCH_VARIABLE = "AUTOTUNE_BATCH"
"""Always set for a command, to the batch size it is to train with."""
_EXAMPLE = "autotune max-batch -- python train.py --batch-size {batch}"


@dataclass(frozen=True, slots=True)
class Filled:
    """A command ready to be run."""

    words: tuple[str, ...]
    environment: Mapping[str, str]
    """Variables to set beside those there are."""

    def with_environment(self, more: Mapping[str, str]) -> "Filled":
        """With further variables, such as the allocator's."""
        return replace(self, environment={**more, **self.environment})

    @property
    def text(self) -> str:
        """As one would type it."""
        return " ".join(
            [*(f"{name}={shlex.quote(value)}" for name, value in self.environment.items()), shlex.join(self.words)]
        )


def parse_command(words: Sequence[str], templates: Sequence[str], directory: Path) -> Source:
    """Check a command as far as that works without running it.

    Args:
        words: as typed, the program first.
        templates: as given with ``--set``.
        directory: where it is run.

    Raises:
        UsageError: there is no such program, the batch size has no place in it, or a template says nothing.
    """
    program = shutil.which(words[0], path=None if os.sep in words[0] else os.environ.get("PATH"))
    if os.sep in words[0]:
        program = shutil.which(str(directory / words[0]))
    if program is None:
        raise UsageError(
            f"{words[0]}: no such program", hint=f"give the whole command behind --, for example: {_EXAMPLE}"
        )
    read = tuple(_template(text) for text in templates)
    twice = {name for name, _ in read if [n for n, _ in read].count(name) > 1}
    if twice:
        raise UsageError(f"--set names {', '.join(sorted(twice))} twice", hint="give one template for each setting")
    _check_placeholders(words, [text for _, text in read])
    if not any(f"{{{BATCH}}}" in word for word in words) and BATCH not in dict(read):
        raise UsageError(
            f"the command has no {{{BATCH}}} in it, so that nobody tells it the batch size: {shlex.join(words)}",
            hint=f"write {{{BATCH}}} where it takes the batch size of one device, for example: {_EXAMPLE}",
        )
    return Source(ref=shlex.join(words), command=tuple(words), templates=read, directory=str(directory))


def _template(text: str) -> tuple[str, str]:
    name, equals, template = text.partition("=")
    if not equals or not name or not template.strip():
        raise UsageError(
            f"--set {text!r} is no NAME=TEMPLATE",
            hint="for example --set 'precision=--amp {value}' or --set batch=env:BATCH_SIZE",
        )
    variable = _variable(template)
    if variable is not None and not _VARIABLE.match(variable):
        raise UsageError(
            f"--set {text!r} names no environment variable: {variable!r}", hint="for example --set batch=env:BATCH_SIZE"
        )
    if variable is None:
        _split(text, template)
    return name, template


def _check_placeholders(words: Sequence[str], templates: Sequence[str]) -> None:
    """Refuse what is nearly a placeholder; other braces, as of JSON, are the user's."""
    for known, texts in (((BATCH, SCRATCH), words), ((BATCH, SCRATCH, VALUE), templates)):
        for name in (name for text in texts for name in _PLACEHOLDER.findall(text) if name not in known):
            close = difflib.get_close_matches(name, known, n=1)
            if close:
                raise UsageError(f"{{{name}}} is no placeholder", hint=f"did you mean {{{close[0]}}}?")


def fill(source: Source, batch_size: int, values: Mapping[str, str], scratch: str) -> Filled:
    """The command for one batch size.

    Args:
        source: made by ``parse_command``.
        batch_size: micro-batch of one device.
        values: setting -> its value in words, for those that are not as the user has them; each needs a template.
        scratch: folder for what is not to be kept.
    """
    known = {BATCH: str(batch_size), SCRATCH: scratch}
    words = [_replaced(word, known) for word in source.command]
    environment: dict[str, str] = {}
    told = {BATCH: str(batch_size), **values}
    for name, template in source.templates:
        if name not in told:
            continue
        own = {**known, VALUE: told[name]}
        variable = _variable(template)
        if variable is not None:
            environment[variable] = told[name]
        else:
            words += [_replaced(word, own) for word in _split(name, template)]
    return Filled(tuple(words), environment)


def uses_scratch(source: Source) -> bool:
    """Whether the command writes what it writes to a place that is cleaned up."""
    texts = [*source.command, *(template for _, template in source.templates)]
    return any(f"{{{SCRATCH}}}" in text for text in texts)


def _variable(template: str) -> str | None:
    return template.removeprefix(_ENVIRONMENT) if template.startswith(_ENVIRONMENT) else None


def _replaced(word: str, values: Mapping[str, str]) -> str:
    return _PLACEHOLDER.sub(lambda found: values.get(found[1], found[0]), word)


def _split(name: str, template: str) -> list[str]:
    try:
        return shlex.split(template)
    except ValueError as error:
        raise UsageError(f"--set {name}: {error} in {template!r}", hint="close the quotes") from error
