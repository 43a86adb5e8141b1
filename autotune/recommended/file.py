"""autotune.json from disk, checked. What it holds is data: nothing of it is evaluated."""

import shlex
from pathlib import Path

from autotune.errors import AutotuneError, EnvironmentTrouble, UsageError
from autotune.report.document import read
from autotune.report.fields import Document
from autotune.units import format_bytes

_MOST_BYTES = 64 << 20
"""Thousands of times what is in any of these files."""


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
        text = _text(path, hint=_make(path))
        return None if text is None and missing_ok else _read(path, text, instead)
    except AutotuneError as error:
        for note in (error.detail, f"hint: {error.hint}"):
            if note:
                error.add_note(note)
        raise


def read_recommendation(path: Path) -> Document:
    """As ``read_file`` of a file that has to be there, without the notes: for whoever shows detail and hint by itself."""
    return _read(path, _text(path, hint=_make(path)), "")


def text_of(path: Path, *, hint: str) -> str:
    """The text of a file that a person named.

    Args:
        path: of the file.
        hint: what to give in place of a file that is missing, or is no such text.

    Raises:
        UsageError: there is none, or it is no text, or too much of it.
        EnvironmentTrouble: it cannot be read.
    """
    text = _text(path, hint=hint)
    if text is None:
        raise UsageError(f"there is no {path}", hint=hint)
    return text


def _read(path: Path, text: str | None, instead: str) -> Document:
    if text is None:
        raise UsageError(f"there is no {path}", hint=_make(path) + instead)
    try:
        return read(text)
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}", detail=error.detail, hint=error.hint) from error


def _text(path: Path, *, hint: str) -> str | None:
    """None where there is no such file. One read of one open file: what replaces it meanwhile is not mixed into it."""
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise UsageError(f"{path} has more than {format_bytes(_MOST_BYTES)}", hint=hint)
        return content.decode("utf-8-sig")  # editors of Windows begin a file with a mark
    except FileNotFoundError:
        return None
    except IsADirectoryError as error:
        raise UsageError(f"{path} is a directory", hint=hint) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is no text", hint=hint) from error
    except OSError as error:
        raise EnvironmentTrouble(
            f"cannot read {path}: {error.strerror}", hint="look at its permissions, or name another file"
        ) from error
    except ValueError as error:  # a NUL in its name
        raise UsageError(f"{str(path)!r} is no name of a file", hint=hint) from error


def _make(path: Path) -> str:
    return f"make it with: autotune search MODEL --output {shlex.quote(str(path))}"
