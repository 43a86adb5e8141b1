"""What ``autotune doctor`` prints: one block of text that goes into a bug report as it is, or JSON. Pure."""

import json
import textwrap
from dataclasses import asdict
from itertools import groupby

from autotune.model import Diagnosis, Health

_MARKS = {Health.OK: " ", Health.NOTE: "-", Health.TROUBLE: "!"}
_WIDTH = 118


def diagnosis_text(diagnosis: Diagnosis, home: str = "") -> str:
    """Every fact on lines of its own, what to type beneath it; what is wrong comes once more at the end.

    Args:
        diagnosis: what was found.
        home: the user's home directory, written ``~``; empty = none is.
    """
    width = max((len(one.name) for one in diagnosis.facts), default=0)
    width = min(width, 28)
    lines: list[str] = []
    for section, facts in groupby(diagnosis.facts, key=lambda one: one.section):
        lines.append(section)
        for one in facts:
            lines += _folded(f"{_MARKS[one.health]} {one.name:<{width}}  ", one.value)
            if one.hint:
                lines += _folded(f"  {'':<{width}}  -> ", one.hint)
    troubles = [one for one in diagnosis.facts if one.health is Health.TROUBLE]
    lines.append(_summary(len(troubles), usable=diagnosis.usable))
    lines += [f"! {one.section}, {one.name}: {one.hint or one.value}" for one in troubles]
    text = "\n".join(lines)
    return text.replace(home, "~") if len(home) > 1 else text


def diagnosis_json(diagnosis: Diagnosis, home: str = "") -> str:
    """The same for programs: ``usable``, and the facts with their health and hints. ASCII."""
    content = json.loads(json.dumps({"schema_version": 1, **asdict(diagnosis)}))
    for one in content["facts"] if len(home) > 1 else ():
        one.update({name: one[name].replace(home, "~") for name in ("value", "hint")})
    return json.dumps(content, indent=2)


def _summary(troubles: int, *, usable: bool) -> str:
    state = "searches can run here" if usable else "no search can run here"
    if not troubles:
        return f"{state}; nothing is wrong"
    return f"{state}; {troubles} thing{'s' if troubles > 1 else ''} to repair:"


def _folded(start: str, text: str) -> list[str]:
    return textwrap.wrap(
        text or "-",
        width=_WIDTH,
        initial_indent=start,
        subsequent_indent=" " * len(start),
        break_long_words=False,
        break_on_hyphens=False,
    )
