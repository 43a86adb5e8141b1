"""autotune.json from disk, checked. What it holds is data: nothing of it is evaluated."""

import shlex
from pathlib import Path

from autotune.errors import AutotuneError, EnvironmentTrouble, UsageError
from autotune.report.document import read
from autotune.report.fields import Document


def read_file(path: Path, *, missing_ok: bool, instead: str = "") -> Document | None:
    """The file's content, checked; None where it is missing and may be. An error's rest is noted on it, since a traceback
    shows its message alone.

    Args:
        path: what ``autotune search --output`` wrote.
        missing_ok: whether there need be no file.
        instead: what else can be done where there is none, for the hint.

    Raises:
        UsageError: there is no such file, or it is not a recommendation; ``detail`` lists every bad field.
        EnvironmentTrouble: it cannot be read.
    """
    try:
        text = _text(path)
        return None if text is None and missing_ok else _read(path, text, instead)
    except AutotuneError as error:
        for note in (error.detail, f"hint: {error.hint}"):
            if note:
                error.add_note(note)
        raise


def read_recommendation(path: Path) -> Document:
    """As ``read_file`` of a file that has to be there, without the notes: for whoever shows detail and hint by itself."""
    return _read(path, _text(path), "")


def _read(path: Path, text: str | None, instead: str) -> Document:
    if text is None:
        raise UsageError(f"there is no {path}", hint=f"make it with: {_write(path)}{instead}")
    try:
        return read(text)
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}", detail=error.detail, hint=error.hint) from error


def _text(path: Path) -> str | None:
    """None where there is no such file."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path} is not a recommendation of autotune: it is no text", hint=f"write it: {_write(path)}"
        ) from error
    except OSError as error:
        raise EnvironmentTrouble(
            f"cannot read {path}: {error.strerror}", hint=f"look at its permissions, or write it again: {_write(path)}"
        ) from error


def _write(path: Path) -> str:
    return f"autotune search MODEL --output {shlex.quote(str(path))}"
