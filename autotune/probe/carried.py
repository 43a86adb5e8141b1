"""Errors that are only quoted: in texts of launchers and data loaders, and on the error output of the dead. Pure."""

import re
import signal
from dataclasses import replace
from itertools import pairwise

from autotune.probe.evidence import Raised, class_names, short_name
from autotune.probe.signatures import CARRIERS

_HEADER = "Traceback (most recent call last):"
_ERROR_LINE = re.compile(r"(?P<type>[A-Za-z_][\w.]*)(?:: ?(?P<text>.*))?")
_SIGNAL = re.compile(
    r"terminated with signal (SIG[A-Z]+)|Signal \d+ \((SIG[A-Z]+)\) received by PID|died with <Signals\.(SIG[A-Z]+): \d+>"
)
_TERMINATE = re.compile(
    r"terminate called after throwing an instance of '(?P<gcc>[^'\n]{1,200})'(?:\s+what\(\):\s*)?"
    r"|terminating (?:due to|with) uncaught exception of type (?P<clang>[\w:]{1,200}):?"
)


def unwrap(chain: tuple[Raised, ...]) -> tuple[Raised, ...]:
    """Put the errors of other processes and threads in the place of those that only report them, outermost first."""
    flat: list[Raised] = []
    for raised in chain:
        if "ChildFailedError" in class_names(raised):
            # Only the first rank that failed says why; the others lost contact with it.
            raised = replace(raised, text=raised.text.rpartition("Root Cause")[2])
        inner = quoted(raised.text)
        if inner and short_name(inner[0].type) == short_name(raised.type):
            # A worker's error, raised again under its own type: keep the real classes, but only its own words.
            flat.append(replace(raised, text=inner[0].text))
            inner = inner[1:]
        elif not inner or not class_names(raised) & CARRIERS:
            flat.append(raised)
        flat.extend(inner)
    return tuple(flat)


def quoted(text: str) -> tuple[Raised, ...]:
    """Read the exceptions from the tracebacks printed in a text, outermost (the last printed) first."""
    lines = text.splitlines()
    starts = [number + 1 for number, line in enumerate(lines) if line.rstrip().endswith(_HEADER)]
    found = [_error(lines[start : end - 1]) for start, end in pairwise([*starts, len(lines) + 1])]
    return tuple(raised for raised in reversed(found) if raised is not None)


def _error(lines: list[str]) -> Raised | None:
    """The exception of one traceback: what follows its frames, which are indented deeper."""
    depth = _indent(lines[0]) if lines else 0
    below = next((number for number, line in enumerate(lines) if line.strip() and _indent(line) < depth), None)
    if below is None or (match := _ERROR_LINE.fullmatch(lines[below].strip())) is None:
        return None
    words = [match["text"] or ""]
    for line in lines[below + 1 :]:
        if not line.strip() or line.startswith("===="):
            break
        words.append(line.strip())
    name = match["type"] if "." in match["type"] else f"builtins.{match['type']}"
    return Raised(type=name, bases=(name,), text="\n".join(words).strip())


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def terminated(stderr_tail: str) -> Raised | None:
    """Read what the C++ runtime aborted for: the exception that nobody caught."""
    match = _TERMINATE.search(stderr_tail)
    if match is None:
        return None
    name = match["gcc"] or match["clang"]
    text = stderr_tail[match.end() :].split("\n\n")[0].strip()
    # Python sees C++ exceptions as RuntimeError, and the tables name what Python sees.
    return Raised(type=name, bases=(name, "builtins.RuntimeError"), text=f"{name}: {text}" if text else name)


def carried_signal(text: str) -> int | None:
    """Number of the signal that, as a launcher reports, ended one of its processes; None if it names none."""
    match = _SIGNAL.search(text)
    name = (match[1] or match[2] or match[3]) if match else ""
    return signal.Signals[name] if name in signal.Signals.__members__ else None
