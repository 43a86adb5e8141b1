"""Values of knobs as text: what the user writes after ``KNOB=``, and what tables show. Strict both ways."""

import difflib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Value = str | bool | int | float | None
"""What a field of ``Settings`` holds; the enums of the settings are texts."""

DEFAULT = "default"
"""Text of a value that means: as it is without autotune."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How one knob's values are written."""

    text: Callable[[Value], str]
    parse: Callable[[str], Value] | None = None
    """Reads values beside the known ones; None for a text that is none. Not there = only the known ones exist."""
    also: str = ""
    """What may be written beside the known values, in words."""

    def hint(self, wrong: str, known: Sequence[str]) -> str:
        """The values there are, after the one that was probably meant."""
        every = ", ".join(known) + (f", or {self.also}" if self.also else "")
        close = difflib.get_close_matches(wrong.lower().replace("-", "_"), known, n=1, cutoff=0.6)
        close = close or difflib.get_close_matches(wrong.lower(), known, n=1, cutoff=0.6)
        return f"did you mean {close[0]}? It has: {every}" if close else f"it has: {every}"


def _plain(value: Value) -> str:
    return str(value)


def _switch(value: Value) -> str:
    return "true" if value else "false"


def _number(value: Value) -> str:
    assert isinstance(value, int | float)
    return str(int(value)) if value == int(value) else repr(value)


def _read_number(text: str) -> Value:
    try:
        value = float(text)
    except ValueError:  # not a number at all: the knob then says what it takes
        return None
    return value if math.isfinite(value) else None


def _count(value: Value) -> str:
    return DEFAULT if value is None else str(value)


def _read_count(text: str) -> Value:
    return int(text) if text.isascii() and text.isdigit() else None


def _configuration(value: Value) -> str:
    return str(value) or DEFAULT


def _read_configuration(text: str) -> Value:
    return text if ":" in text else None


WORDS = Reading(_plain)
SWITCH = Reading(_switch)
SCALE = Reading(_number, _read_number, "another number above 0")
SHARE = Reading(_number, _read_number, "another share above 0")
COUNT = Reading(_count, _read_count, "another number")
CONFIGURATION = Reading(_configuration, _read_configuration, "PyTorch's option:value,option:value")
