"""The end of a search: the best settings, shown to train the same, certified; or the next best if they are not."""

from dataclasses import replace

from autotune.model import Answer, Compile, Form, Objective, Question, Settings, Stop
from autotune.search.settings.candidates import closing_s
from autotune.search.settings.certify import certify
from autotune.search.settings.choose import choose, leader
from autotune.search.settings.conclude import changed_words, standing_answer
from autotune.search.settings.explore import improvement, worth
from autotune.search.settings.guard import accumulation_differs, compare
from autotune.search.settings.rows import Row, plain
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
            return Stop(reason=reason_of(view, answer), answer=answer)
        out.add(row.settings)


def reason_of(view: View, answer: Answer) -> str:
    """Why the search ended here, in sentences."""
    assert answer.settings is not None, "a settings search always says for which"
    changes = changed_words(answer.settings, view.asked.space.base)
    of = f" with {changes}" if changes else " with your own settings"
    parts = [
        f"Batch {answer.recommended_batch}{of} is certified after {len(view.history)} probes{_times(view, answer)}"
    ]
    if not answer.complete:
        parts.append("Time ran out before the search was complete")
    if view.rescued:
        parts.append("Your own settings fit at no batch size, so that nothing could be compared with them")
    if accumulation_differs(view):
        parts.append("Micro-batches do not add up to what one large batch trains")
    if view.opened:
        parts += _left_out(view)
    return ". ".join(parts) + "."


def _times(view: View, answer: Answer) -> str:
    """How much faster than the user's own settings, where both were timed."""
    assert answer.settings is not None, "a settings search always says for which"
    own = view.table.row(view.asked.base).speeds
    new = view.table.row(answer.settings).speeds.get(answer.recommended_batch)
    if plain(answer.settings) == view.asked.base or not own or new is None:
        return ""
    return f", {new / max(own.values()):.2f} times as fast as your own settings"


def _left_out(view: View) -> list[str]:
    """Compiled settings that promised enough and were not tried for what compiling takes."""
    if Compile.DEFAULT not in view.asked.space.values("compile"):
        return []
    lead = leader(view)
    wanted = [
        settings
        for settings in view.asked.space.neighbours(lead.settings)
        if compiles(settings)
        and settings not in view.table.rows
        and view.allowed(settings)
        and improvement(view, settings, lead) >= worth(settings)
    ]
    if not wanted:
        return []
    compiled = any(compiles(settings) for settings in view.table.rows)
    what = f"{len(wanted)} more settings that compile were" if compiled else "torch.compile was"
    return [f"{what} left out, as compiling has taken, or would take, more than its share of the time"]


def _not_slower(view: View, row: Row, answer: Answer) -> Answer | None:
    """The answer at a size at which it is no slower than what the user has; None if there is none."""
    own = view.table.row(view.asked.base).speeds
    if row.settings == view.asked.base or view.asked.objective is not Objective.THROUGHPUT or not own:
        return answer
    least = max(own.values())
    if row.speeds.get(answer.recommended_batch, 0.0) >= least:
        return answer
    certified = [
        p.batch_size
        for p in row.probes
        if p.form is Form.LONG and p.fits and p.settings == answer.settings and p.batch_size <= answer.max_batch
    ]
    fast = [size for size in certified if row.speeds.get(size, 0.0) >= least and size in row.evidence.good]
    return replace(answer, recommended_batch=min(fast)) if fast else None


def _in_a_hurry(view: View) -> bool:
    """Whether there is no time for the search for the limit."""
    budget = view.spending.time_budget_s
    return budget is not None and view.spending.total_s + _LIMIT_PROBES * view.spending.eager_s > budget


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
