"""Nouns of what others wrote: rows of a ledger, exported lines, messages of workers. Checked field by field, not evaluated.

Not among the names that ``autotune.model`` offers: pydantic is slow to load, and the torch side does without it.
"""

import math
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, cast

from autotune.errors import UsageError
from autotune.model.probe import ProbeResult
from autotune.units import LARGEST

if TYPE_CHECKING:
    from collections.abc import Hashable

    from pydantic import TypeAdapter

T = TypeVar("T")


def noun_of(kind: type[T], content: object) -> T:
    """Read a noun, or whatever else pydantic knows to check.

    Args:
        kind: what is expected.
        content: what is there in its place, of the types that JSON has, or a row's.

    Raises:
        ValueError: it is none, or says what cannot be; names the field where it is one.
    """
    from pydantic import ValidationError

    try:
        found: T = _adapter(cast("Hashable", kind)).validate_python(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"{where}: {first['msg']}" if where else first["msg"]) from error
    except UsageError as error:  # how ``Settings`` refuses values
        raise ValueError(error.message) from error
    why = next(_impossible(found, ""), "")
    if why:
        raise ValueError(why)
    return found


@cache
def _adapter(kind: Any) -> "TypeAdapter[Any]":
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def _impossible(value: object, where: str) -> Iterator[str]:
    """What of a value of the right form cannot be, or not be kept."""
    if isinstance(value, int) and abs(value) > LARGEST:
        yield f"{where}: a number that cannot be"
    elif isinstance(value, datetime) and not _is_instant(value):
        yield f"{where}: {value} is no instant"
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _impossible(item, where)
    elif isinstance(value, dict):
        yield from _impossible(tuple(value.values()), where)
    elif is_dataclass(value):
        if isinstance(value, ProbeResult):
            yield from _untrue(value)
        for field in fields(value):
            yield from _impossible(getattr(value, field.name), f"{where}.{field.name}".removeprefix("."))


def _untrue(probe: ProbeResult) -> Iterator[str]:
    if probe.fits != (probe.failure is None):
        yield f"outcome {probe.outcome.value!r} contradicts its failure"
    if not math.isfinite(probe.seconds):
        yield f"seconds: {probe.seconds} is no duration"


def _is_instant(value: datetime) -> bool:
    """Whether it says which hour it means, within the years that there are in UTC."""
    try:
        return value.tzinfo is not None and value.astimezone(UTC) is not None
    except OverflowError:
        return False
