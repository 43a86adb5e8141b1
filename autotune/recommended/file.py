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
        return checked(path, missing_ok=missing_ok, instead=instead)
    except AutotuneError as error:
        for note in (error.detail, f"hint: {error.hint}"):
            if note:
                error.add_note(note)
        raise


def checked(path: Path, *, missing_ok: bool = False, instead: str = "") -> Document | None:
    """As ``read_file``, without the notes: for whoever shows an error's detail and hint by itself."""
    write = f"autotune search MODEL --output {shlex.quote(str(path))}"
    try:
        return read(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        if missing_ok:
            return None
        raise UsageError(f"there is no {path}", hint=f"make it with: {write}{instead}") from error
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path} is not a recommendation of autotune: it is no text", hint=f"write it: {write}"
        ) from error
    except OSError as error:
        raise EnvironmentTrouble(
            f"cannot read {path}: {error.strerror}", hint=f"look at its permissions, or write it again: {write}"
        ) from error
