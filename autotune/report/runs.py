"""The list of searches as text. Its own file: what tells of one search in full takes longer to load than the list to read."""

from collections.abc import Sequence

from autotune.model import SearchSummary
from autotune.report.columns import NOTHING, align, instant_words, shortened
from autotune.units import format_bytes

_HEADINGS = ("id", "created", "state", "max batch", "probes", "model", "length bucket", "device", "budget")
_NUMBERS = (3, 4, 6)
_MODEL = _HEADINGS.index("model")
_BUCKET = _HEADINGS.index("length bucket")
_LEAST_MODEL = 16
"""Characters that are left of a model or command, however narrow the terminal."""


def runs_table(summaries: Sequence[SearchSummary], width: int | None = None) -> str:
    """One line a search, in the order given. The column of length buckets is there if one of them was of such.

    Args:
        summaries: the searches.
        width: characters in a line of the terminal; models and commands that are too long for it lose their middle.
            None: they are whole.
    """
    rows = [_HEADINGS, *(_row(one) for one in summaries)]
    numbers: tuple[int, ...] = _NUMBERS
    if all(one.length_bucket is None for one in summaries):
        rows = [(*row[:_BUCKET], *row[_BUCKET + 1 :]) for row in rows]
        numbers = numbers[:-1]
    lines = align(rows, right=numbers)
    over = max(map(len, lines)) - width if width is not None else 0
    if over > 0:
        most = max(max(len(row[_MODEL]) for row in rows) - over, _LEAST_MODEL)
        rows = [(*row[:_MODEL], shortened(row[_MODEL], most), *row[_MODEL + 1 :]) for row in rows]
        lines = align(rows, right=numbers)
    return "\n".join(lines)


def _row(one: SearchSummary) -> tuple[str, ...]:
    return (
        one.id,
        instant_words(one.created),
        f"{one.state.value}, predicted" if one.predicted else one.state.value,
        NOTHING if one.max_batch is None else str(one.max_batch),
        str(one.probes),
        one.workload_ref,
        NOTHING if one.length_bucket is None else str(one.length_bucket),
        one.device_name,
        format_bytes(one.budget_bytes),
    )
