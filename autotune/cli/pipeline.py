"""What pipelines read beside stdout: GitHub's files and annotations where its variables are set, and one-value files.

stdout stays what it is. Annotations go to stderr, which GitHub reads as well.
"""

import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.cli.write import check_writable, write_whole
from autotune.errors import EnvironmentTrouble, UsageError

if TYPE_CHECKING:  # pydantic comes with an answer, and not for --help
    from autotune.report.fields import Document, FailureDocument

OUTPUT_VARIABLE = "GITHUB_OUTPUT"
SUMMARY_VARIABLE = "GITHUB_STEP_SUMMARY"
_MOST_WARNINGS = 10
"""GitHub shows no more of a kind in a step."""


@dataclass(frozen=True)
class Pipeline:
    """Where one command leaves its values."""

    title: str
    """The command."""
    files: Mapping[str, Path] = field(default_factory=dict)
    """Name of a value -> file for it."""

    @classmethod
    def of(cls, title: str, output_files: Sequence[str]) -> "Pipeline":
        """From ``NAME=PATH`` texts.

        Raises:
            UsageError: there is no such value, or it is asked for twice.
        """
        from autotune.report.outputs import JSON, NAMES

        files: dict[str, Path] = {}
        known = (*NAMES, JSON)
        for text in output_files:
            name, _, path = text.partition("=")
            if name not in known or not path:
                raise UsageError(
                    f"--output-file {text!r} is no NAME=PATH of a value",
                    hint=f"for example --output-file max_batch=/tmp/max_batch; values are {', '.join(known)}",
                )
            if name in files:
                raise UsageError(f"--output-file names {name} twice", hint="give each value one file")
            files[name] = Path(path)
        return cls(title, files)

    def make_room(self) -> None:
        """See that the files can be written, and remove older ones: a value that is there is of this run. Their folders are
        made, as Kubeflow leaves that to the program.

        Raises:
            UsageError: one cannot be written.
        """
        for path in self.files.values():
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise UsageError(
                    f"cannot make the folder of {path}: {error.strerror}", hint="name another file"
                ) from error
            check_writable(path)
            path.unlink(missing_ok=True)

    def publish(self, content: "Document | FailureDocument", detail: str = "") -> None:
        """Leave what the command found.

        Args:
            content: what it prints under ``--json``.
            detail: longer text beside an error's message.

        Raises:
            EnvironmentTrouble: a file cannot be written.
        """
        from autotune.report.document import to_text
        from autotune.report.fields import FailureDocument
        from autotune.report.outputs import JSON, outputs, summary

        values = outputs(content)
        for name, path in self.files.items():
            if name == JSON:
                write_whole(path, to_text(content))
            elif name in values:
                write_whole(path, values[name])  # without a line break: some readers take the file as it is
        _append(OUTPUT_VARIABLE, "".join(_assignment(name, value) for name, value in values.items()))
        _append(SUMMARY_VARIABLE, summary(self.title, content, detail) + "\n")
        if isinstance(content, FailureDocument):
            self._annotate("error", content.error.message)
        else:
            for warning in content.warnings[:_MOST_WARNINGS]:
                self._annotate("warning", warning)

    def _annotate(self, kind: str, message: str) -> None:
        from autotune.cli.console import Screen, on_github

        if on_github():
            Screen(stderr=True).command(f"::{kind} title={_escaped(self.title, ':,')}::{_escaped(message)}")


def _append(variable: str, text: str) -> None:
    path = os.environ.get(variable)
    if not path:
        return
    try:
        with open(path, "a", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(text)
    except OSError as error:
        raise EnvironmentTrouble(
            f"cannot write {path}, which {variable} names: {error.strerror}",
            hint=f"the answer is kept; unset {variable} if this is not GitHub Actions",
        ) from error


def _assignment(name: str, value: str) -> str:
    """A value for GITHUB_OUTPUT. One of several lines is set between lines that it cannot hold, or it could set others."""
    if value.isprintable():
        return f"{name}={value}\n"
    end = f"end-{secrets.token_hex(16)}"
    return f"{name}<<{end}\n{value}\n{end}\n"


def _escaped(text: str, more: str = "") -> str:
    """As GitHub's commands want it: ``more`` are characters that end a property."""
    for character in "%\r\n" + more:
        text = text.replace(character, f"%{ord(character):02X}")
    return text
