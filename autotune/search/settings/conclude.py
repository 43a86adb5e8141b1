"""The best answer that stands at any moment: certified, and shown to train the same."""

from collections.abc import Iterator
from math import log

from autotune.model import Answer, Form, Objective
from autotune.search.recommend import TOLERANCE
from autotune.search.settings.certify import answer_at
from autotune.search.settings.choose import MARGIN
from autotune.search.settings.room import held_bytes
from autotune.search.settings.rows import Row
from autotune.search.settings.view import View


def standing_answer(view: View) -> Answer | None:
    """The best certified settings at their best certified size; None if nothing is certified.

    As everywhere, more changes have to pay: by more than 1 % over settings with fewer of them.
    """
    base, held = view.asked.base, None
    found = [(row, size, value) for row in _eligible(view) if (best := _best(view, row)) for size, value in [best]]
    for row, size, value in sorted(found, key=lambda one: (len(one[0].settings.changes(base)), -one[2])):
        if held is None or value - held[2] > MARGIN:
            held = row, size, value
    if held is None:
        return None
    row, size, _ = held
    return answer_at(view, row, size, complete=False)


def _eligible(view: View) -> list[Row]:
    """Rows that may be recommended; the user's own settings, if --fix demands others, only where there are no others."""
    rows = [row for row in view.table.rows.values() if view.trusted(row.settings) and any(_certified(view, row))]
    demanded = [row for row in rows if row.settings != view.asked.base]
    return demanded if demanded and view.asked.space.start != view.asked.space.base else rows


def _certified(view: View, row: Row) -> Iterator[int]:
    """Sizes certified with the accumulation that a training has there."""
    for size in row.certified:
        trained = view.sizes.trained(row.settings, size)
        if view.sizes.down(size) == size and any(
            p.batch_size == size and p.form is Form.LONG and p.fits and p.settings == trained for p in row.probes
        ):
            yield size


def _best(view: View, row: Row) -> tuple[int, float] | None:
    """(size, logarithm of the goal there)."""
    match view.asked.objective:
        case Objective.THROUGHPUT:
            speeds = {size: row.speeds[size] for size in _certified(view, row) if size in row.speeds}
            if speeds:
                size = min(n for n, speed in speeds.items() if speed >= (1 - TOLERANCE) * max(speeds.values()))
                return size, log(speeds[size])
            size = next(_certified(view, row))
            return size, float("-inf")
        case Objective.BATCH:
            size = max(_certified(view, row))
            return size, log(size)
        case Objective.MEMORY:
            size = max(_certified(view, row))
            held = max(held_bytes(p) for p in row.probes if p.batch_size == size and p.fits)
            return size, -log(held or 1)
