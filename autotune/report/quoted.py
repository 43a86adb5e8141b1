"""Other people's text in Markdown, as code: whatever it holds, nothing of it has a meaning there. Pure."""

import re

_LONGEST = 20_000
"""Characters of a block that are shown; a page takes 1 MiB."""


def code(text: str) -> str:
    """Text as code within a line: one line, in more backticks than it has in a row."""
    line = " ".join(_printable(text).split()) or " "
    fence = "`" * (_longest_run(line) + 1)
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def block(text: str) -> list[str]:
    """Text as the lines of a block of code, likewise."""
    shown = _printable(text)[:_LONGEST].rstrip("\n")
    fence = "`" * max(3, _longest_run(shown) + 1)
    return [f"{fence}text", *shown.splitlines(), fence]


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)


def _printable(text: str) -> str:
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", "", text)
