"""The documents of all benchmarks: read and written whole or not at all, and what their parts have in common."""

import os
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError


class Status(StrEnum):
    """What became of a command; only ``done`` is not tried again."""

    DONE = "done"
    FAILED = "failed"
    TIMED_OUT = "timed out"
    NOT_INSTALLED = "not installed"


class BadResults(Exception):
    """A results file cannot be used; the text says which and why."""


class Part(BaseModel):
    """A part of a document: immutable, no conversions, no unknown fields."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", use_attribute_docstrings=True)
    what: ClassVar[str]
    """Of a whole document: what it is, in words."""


class Run(BaseModel):
    """One call of the command."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    command: str
    created: str
    """UTC, ISO 8601."""
    device: str
    driver: str
    capacity_bytes: int
    cuda: str
    python: str
    versions: dict[str, str]
    """Of what is installed."""


class Answer(Part):
    """What became of one command."""

    status: Status
    message: str = ""
    """Why it gave no answer, or how a training ended."""
    seconds: float | None = None
    """Wall time of the command; of a training of the settings benchmark without the start of its process, of brute force of
    its probes."""

    @property
    def done(self) -> bool:
        """Whether it need not be run again."""
        return self.status is Status.DONE


PartT = TypeVar("PartT", bound=Part)


def read(path: Path, kind: type[PartT]) -> PartT:
    """Read a document of this kind.

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
        raise BadResults(f"{path} is no {kind.what}: {f'{where}: ' if where else ''}{first['msg']}") from error


def write(path: Path, document: BaseModel) -> None:
    """Replace the file as a whole, so that a run that is cut off leaves the former one."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(document.model_dump_json(indent=1) + "\n")
    os.replace(partial, path)


def check_alike(documents: Sequence[BaseModel], *conditions: str) -> None:
    """See that documents were made under the same conditions, which are fields of theirs.

    Raises:
        BadResults: they were not.
    """
    for name in conditions:
        values = dict.fromkeys(getattr(document, name) for document in documents)
        if len(values) > 1:
            told = " and ".join(map(str, values))
            raise BadResults(f"these results cannot be in one table: {name} is {told}")
