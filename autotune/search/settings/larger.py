"""Settings that leave room, at a larger batch: throughput at the best size counts, not at the one all were compared at."""

from autotune.model import Form, Objective, Question, Reason
from autotune.search.settings.candidates import affordable, size_to_grow_to
from autotune.search.settings.certify import searches_limit
from autotune.search.settings.choose import MARGIN, leader, value_of
from autotune.search.settings.rows import Row
from autotune.search.settings.spending import compiles
from autotune.search.settings.view import View

_WORTH_A_PROBE = 0.02
"""Growth (logarithm) from which on a larger size is tried; the size that is recommended may be slower by as much."""
_WORTH_A_COMPILE = 0.03
_TRIES = 2
"""Larger sizes tried of the same settings; one where each costs a compile."""


def grow(view: View) -> Question | None:
    """The next larger size to time; None once no settings can win by one."""
    lead = leader(view)
    top = value_of(view, lead)
    offers = [offer for row in view.table.alive if (offer := _offer(view, row, lead, top)) is not None]
    rivals = [offer for offer in offers if offer[1].settings != lead.settings]
    for _, row, size in sorted(offers, key=lambda offer: -offer[0]):
        if row.settings == lead.settings and not rivals and searches_limit(view, row.settings):
            # The search for the limit, which comes last, times larger sizes anyway.
            continue
        question = view.question(row.settings, size, Form.TIMED, Reason.LARGER)
        if affordable(view, question):
            return question
    return None


def grow_compiled(view: View, lead: Row) -> Question | None:
    """The best settings at a larger size, where they compile: what is compiled after them is compiled for that size."""
    offer = _offer(view, lead, lead, value_of(view, lead)) if compiles(lead.settings) else None
    if offer is None:
        return None
    question = view.question(lead.settings, offer[2], Form.TIMED, Reason.LARGER)
    return question if affordable(view, question) else None


def _offer(view: View, row: Row, lead: Row, top: float) -> tuple[float, Row, int] | None:
    """(value that the settings may reach, the row, the size to time them at), if that is worth a probe."""
    if view.asked.objective is not Objective.THROUGHPUT:
        return None
    best = view.goal.best(row)
    tries = 1 if compiles(row.settings) else _TRIES
    if best is None or not row.speeds or row.asked_for(Reason.LARGER) >= tries:
        return None
    size = size_to_grow_to(view, row)
    if size is None or size <= max(row.speeds) or size in row.evidence.findings:
        return None
    saturation = view.saturation_of(row)
    otherwise = view.sizes.down(best.size) or best.size  # the fastest that was timed may divide no effective batch
    if saturation.gain(otherwise, size) < (_WORTH_A_COMPILE if compiles(row.settings) else _WORTH_A_PROBE):
        return None
    reach = best.value + saturation.gain(best.size, size)
    if row.settings != lead.settings and reach <= top + MARGIN:
        return None
    return reach, row, size
