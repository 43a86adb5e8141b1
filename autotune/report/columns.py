"""Rows of text into aligned columns: the same plain lines for a terminal and for a pipe."""

from collections.abc import Collection, Sequence
from datetime import datetime

NOTHING = "-"
"""What a cell says where there is nothing to say."""


def align(rows: Sequence[Sequence[str]], *, right: Collection[int] = ()) -> tuple[str, ...]:
    """Pad cells so that columns line up, two spaces apart, without trailing blanks.

    Args:
        rows: cells; a line break within a cell is written as a blank.
        right: indices of the columns to align to the right (numbers).
    """
    cells = [[" ".join(cell.split("\n")) for cell in row] for row in rows]
    widths: dict[int, int] = {}
    for row in cells:
        for column, cell in enumerate(row):
            widths[column] = max(widths.get(column, 0), len(cell))
    return tuple(
        "  ".join(
            cell.rjust(widths[column]) if column in right else cell.ljust(widths[column])
            for column, cell in enumerate(row)
        ).rstrip()
        for row in cells
    )


def instant_words(when: datetime | None) -> str:
    """An instant to the second, in UTC."""
    return when.strftime("%Y-%m-%d %H:%M:%S UTC") if when else NOTHING


def shortened(text: str, most: int) -> str:
    """A text in at most so many characters: what is too long loses its middle, as both ends of a path or command tell."""
    if len(text) <= most:
        return text
    end = max(0, most - 1) // 2
    return f"{text[: max(0, most - 1) - end]}…{text[len(text) - end :]}"
