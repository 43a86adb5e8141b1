"""The end of a search: the best settings, shown to train the same, certified; or the next best if they are not."""

from dataclasses import replace

from autotune.model import Answer, Form, Objective, Question, Settings, Stop
from autotune.search.apart import plain
from autotune.search.batch import NOT_SEARCHED
from autotune.search.settings.candidates import closing_s
from autotune.search.settings.certify import certify, searches_limit
from autotune.search.settings.choose import choose
from autotune.search.settings.conclude import standing_answer
from autotune.search.settings.explore import explore
from autotune.search.settings.guard import compare
from autotune.search.settings.larger import grow
from autotune.search.settings.rows import Row
from autotune.search.settings.sample import sample
from autotune.search.settings.saying import reason_of
from autotune.search.settings.spending import compiles
from autotune.search.settings.view import View

_LIMIT_PROBES = 6
"""Probes that searching for the limit of the best settings takes, choosing the recommended size included."""


def settle(view: View) -> Question | Stop:
    """The next probe on the way to the answer, or the answer."""
    out: set[Settings] = set()
    while True:
        row = choose(view, out)
        if isinstance(row, Question):
            return row
        if row is None:
            return _nothing_left(view)
        if _too_late_for(view, row):
            out.add(row.settings)
            continue
        doubtful = compare(view, row.settings)
        if doubtful is not None:
            return doubtful
        reply = certify(view, row, in_a_hurry=_in_a_hurry(view))
        if isinstance(reply, Question):
            return reply
        answer = None if reply is None else _not_slower(view, row, reply)
        if answer is not None:
            answer = replace(answer, complete=not _cut_short(view, answer))
            return Stop(reason=reason_of(view, answer), answer=answer)
        out.add(row.settings)


def _not_slower(view: View, row: Row, answer: Answer) -> Answer | None:
    """The answer at a size at which it is no slower than what the user has; None if there is none. What is demanded may be
    slower."""
    if view.asked.space.start != view.asked.space.base:
        return answer
    own = view.table.row(view.asked.base).speeds
    if row.settings == view.asked.base or view.asked.objective is not Objective.THROUGHPUT or not own:
        return answer
    assert answer.settings is not None, "a settings search always says for which"
    least, found = max(own.values()), view.row_of(answer.settings)
    if found.speeds.get(answer.recommended_batch, 0.0) >= least:
        return answer
    certified = [
        p.batch_size
        for p in found.probes
        if p.form is Form.LONG and p.fits and p.settings == answer.settings and p.batch_size <= answer.max_batch
    ]
    fast = [size for size in certified if found.speeds.get(size, 0.0) >= least]
    return replace(answer, recommended_batch=min(fast)) if fast else None


def _in_a_hurry(view: View) -> bool:
    """Whether there is no time for the search for the limit."""
    budget = view.spending.time_budget_s
    return budget is not None and view.spending.total_s + _LIMIT_PROBES * view.spending.eager_s > budget


def _cut_short(view: View, answer: Answer) -> bool:
    """Whether more time would have been used: for settings that promised enough, or to look for the limit.

    Further compiles, once there was one, are not counted: their share of any time runs out.
    """
    if view.spending.time_budget_s is None:
        return False
    assert answer.settings is not None, "a settings search always says for which"
    if answer.limited_by == NOT_SEARCHED and searches_limit(view, plain(answer.settings)):
        return True
    unhurried = View(replace(view.asked, time_budget_s=None), view.history)
    wanted = [question for stage in (explore, sample, grow) if (question := stage(unhurried)) is not None]
    nothing_compiled = not any(compiles(settings) for settings in view.table.rows)
    return any(nothing_compiled or view.spending.may_compile(question) for question in wanted)


def _too_late_for(view: View, row: Row) -> bool:
    """Whether there is no time to make an answer of the settings, while there is one already."""
    budget = view.spending.time_budget_s
    if budget is None or view.spending.total_s + closing_s(view, row.settings) <= budget:
        return False
    standing = standing_answer(view)
    return standing is not None and standing.settings is not None and plain(standing.settings) != row.settings


def _nothing_left(view: View) -> Stop:
    """No settings could be certified at the end; what was certified on the way still stands."""
    answer = standing_answer(view)
    if answer is None:
        return Stop(reason=f"No settings are safe in the long form, after {len(view.history)} probes.", answer=None)
    return Stop(reason=reason_of(view, answer), answer=answer)
