"""Reading and writing the documents of this benchmark: whole or not at all, and nothing in them that is not known."""

import os
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from benchmarks.comparison.results import BadResults


class Part(BaseModel):
    """A part of a document: immutable, no conversions, no unknown fields."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", use_attribute_docstrings=True)


PartT = TypeVar("PartT", bound=Part)


def read(path: Path, kind: type[PartT], what: str) -> PartT:
    """Read a document.

    Args:
        path: of the file.
        kind: its form.
        what: it should be, in words.

    Raises:
        BadResults: it is not there, or something else; the text says where and why.
    """
    try:
        return kind.model_validate_json(path.read_bytes())
    except OSError as error:
        raise BadResults(f"{path} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise BadResults(f"{path} is no {what}: {f'{where}: ' if where else ''}{first['msg']}") from error


def write(path: Path, document: Part) -> None:
    """Replace the file as a whole, so that a run that is cut off leaves the former one."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(document.model_dump_json(indent=1) + "\n")
    os.replace(partial, path)
