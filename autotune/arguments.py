"""Values that a person typed or a script passed, each checked by itself. Every refusal names the value and what to give."""

import operator
import os
import sys
from collections.abc import Sequence
from typing import SupportsIndex

from autotune.errors import UsageError
from autotune.units import LARGEST

_LONGEST_SHOWN = 60


def shown(value: object) -> str:
    """A value as a message shows it: whole unless it is very long."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no whole number of more than 4,300 digits
        return "a very large number"
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def one_of(name: str, value: object, values: Sequence[str]) -> None:
    """Refuse what is none of the values.

    Raises:
        UsageError: it is something else.
    """
    if value not in values:
        raise UsageError(f"{name} {shown(value)} is not known", hint=f"use one of {', '.join(values)}")


def flag(name: str, value: object) -> bool:
    """A truth value: of anything else, such as the text "no", Python would say that it is true.

    Raises:
        UsageError: it is something else.
    """
    if not isinstance(value, bool):
        raise UsageError(f"{name} is {shown(value)}", hint=f"give {name} True or False")
    return value


def count(name: str, value: object, lowest: int = 1, highest: int = LARGEST) -> int:
    """A whole number within bounds.

    Raises:
        UsageError: it is something else, a truth value included.
    """
    whole = isinstance(value, SupportsIndex) and not isinstance(value, bool)
    if not whole or not lowest <= operator.index(value) <= highest:  # type: ignore[arg-type]
        bounds = f"{lowest} on, of at most 18 digits" if highest == LARGEST else f"{lowest} to {highest}"
        option = name.replace("_", "-")
        raise UsageError(f"{name} is {shown(value)}", hint=f"give {name} (--{option}) a whole number from {bounds}")
    return operator.index(value)  # type: ignore[arg-type]


def seconds(name: str, value: object, lowest: str = "above 0") -> float:
    """A time above zero; ``lowest`` is how a hint says it.

    Raises:
        UsageError: it is something else.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= sys.float_info.max:
        option = name.removesuffix("_s").replace("_", "-")
        raise UsageError(f"{name} is {shown(value)}", hint=f"give {name} (--{option}) a number of seconds {lowest}")
    return float(value)


def texts(name: str, value: object) -> tuple[str, ...]:
    """A sequence of texts; one text alone is a sequence of its letters, and never meant so.

    Raises:
        UsageError: it is something else.
    """
    if isinstance(value, str):
        raise UsageError(f"{name} is {shown(value)}, one text", hint=f"give a list: {name}=[{shown(value)}]")
    if not isinstance(value, Sequence) or not all(isinstance(word, str) for word in value):
        raise UsageError(f"{name} is {shown(value)}", hint=f"give {name} a list of texts")
    return tuple(value)


def path(name: str, value: object) -> str:
    """A path, as text.

    Raises:
        UsageError: it is something else, or no file can have that name.
    """
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(text, str) or "\0" in text:
        raise UsageError(f"{name} is {shown(value)}", hint=f"give {name} a path")
    return text
