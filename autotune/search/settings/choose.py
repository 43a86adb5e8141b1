"""Which settings are the best: never by noise, and rather fewer changes than more.

Settings are taken in the order of how much of the user's own they change. Each has to beat the one before by more than 1 %, in
a paired test where it is close; the user's own come first and so are the answer if nothing does.
"""

from collections.abc import Set as AbstractSet
from math import log

from autotune.model import Form, Objective, Question, Reason, Settings
from autotune.search.settings.pairs import SIGNIFICANT, shorter
from autotune.search.settings.rows import Row
from autotune.search.settings.view import View

MARGIN = log(1.01)
"""A challenger has to be better by more."""
_CLEAR = 0.1
"""Beyond doubt without a test."""
_RIVAL = 0.03
"""Settings further below the best than this are not measured again; they will not win."""
_AGAIN = 2
"""Times that settings are measured again where it is close."""


def leader(view: View) -> Row:
    """The best settings by what was measured so far, tests left aside."""
    holder: Row | None = None
    for row in _in_order(view, frozenset()):
        if holder is None or value_of(view, row) - value_of(view, holder) > MARGIN:
            holder = row
    assert holder is not None, "the origin was measured in the opening"
    return holder


def choose(view: View, out: AbstractSet[Settings]) -> Row | Question | None:
    """The best settings, or a probe that is needed to tell; None if there are none left.

    Args:
        out: settings that turned out not to be safe.
    """
    rows = _in_order(view, out)
    top = max((value_of(view, row) for row in rows), default=0.0)
    holder: Row | None = None
    for row in rows:
        verdict = holder is None or _beats(view, row, holder, top)
        if isinstance(verdict, Question):
            return verdict
        holder = row if verdict else holder
    return holder


def value_of(view: View, row: Row) -> float:
    """The goal's logarithm at the settings' best size; of rows that have one."""
    best = view.goal.best(row)
    assert best is not None, "rows without a value are never compared"
    return best.value


def _in_order(view: View, out: AbstractSet[Settings]) -> list[Row]:
    """Rows that may be recommended, those that change the least first, then the better ones."""
    base = view.asked.base
    rows = [row for row in view.table.alive if row.settings not in out and view.goal.best(row) is not None]
    demanded = [row for row in rows if row.settings != base]
    if demanded and view.asked.space.start != view.asked.space.base:
        rows = demanded  # the user's own settings lack what --fix demands
    return sorted(rows, key=lambda row: (len(row.settings.changes(base)), -value_of(view, row)))


def _beats(view: View, row: Row, holder: Row, top: float) -> bool | Question:
    difference = value_of(view, row) - value_of(view, holder)
    if difference <= MARGIN:
        return False
    if view.asked.objective is not Objective.THROUGHPUT or difference > _CLEAR or value_of(view, row) < top - _RIVAL:
        return True
    sizes = {one.settings: view.goal.best(one) for one in (row, holder)}
    at = {settings: best.size for settings, best in sizes.items() if best is not None}
    if shorter(row.seconds(at[row.settings]), holder.seconds(at[holder.settings])) < SIGNIFICANT:
        return True
    less = min((row, holder), key=lambda one: one.times_timed(at[one.settings]))
    size = at[less.settings]
    if less.times_timed(size) > _AGAIN or not view.spending.may_compile(
        again := view.question(less.settings, size, Form.TIMED, Reason.RETRY)
    ):
        return False
    return again if view.spending.leaves(again, 0.0) else False
