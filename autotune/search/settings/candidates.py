"""A first measurement of settings: at which size, and whether it is within bounds."""

from dataclasses import replace
from math import ceil

from autotune.model import Compile, Form, Objective, Question, Reason, Settings
from autotune.search.settings.priors import features, needs_no_less
from autotune.search.settings.room import expected_limit
from autotune.search.settings.rows import Row
from autotune.search.settings.spending import compiles
from autotune.search.settings.view import View

SAFE_SHARE = 0.9
"""Of the way to a limit that one or two sizes foretell; of the whole limit where it is that of other settings."""
_SHRINKS = 2
"""Times that a size is halved after it proved too large; once where each try compiles."""
_NEARLY = 0.002
"""What a size may be slower by than the largest that fits, to be no larger than it has to."""
_MUCH_LARGER = 1.25
"""Than the size at which others were compiled, to be compiled for another one: equal sizes compare better."""
_COMPILED = 1.4
"""What compiling is taken to bring when the size for it is chosen."""


def measure(view: View, settings: Settings, reason: Reason) -> Question | None:
    """The probe that gives these settings a value; None where they have one, have none to give, or it would cost too much."""
    row = view.table.row(settings)
    if row.evidence.good or view.table.faulty(row):
        return None
    size = _shrunk(view, row) if row.probes else _size(view, settings)
    for _ in range(_SHRINKS):
        if (
            size is not None
            and view.asked.objective is not Objective.MEMORY
            and needs_as_much_as_failed(view, settings, size)
        ):
            size = view.sizes.round(size / 2)
    if size is None or needs_as_much_as_failed(view, settings, size):
        return None
    question = view.question(settings, size, Form.TIMED, reason)
    return question if affordable(view, question) else None


def needs_as_much_as_failed(view: View, settings: Settings, size: int) -> bool:
    """Whether others that save at least as much memory, and take no more otherwise, do not fit at this size or a smaller one."""
    return any(
        row.settings != settings
        and any(failed <= size for failed in row.too_large)
        and needs_no_less(features(settings), features(row.settings))
        for row in view.table.rows.values()
    )


def affordable(view: View, question: Question) -> bool:
    """Whether there is time for the probe, and then for what its settings need to become the answer."""
    spending = view.spending
    return spending.may_compile(question) and spending.leaves(question, closing_s(view, question.settings))


def closing_s(view: View, settings: Settings) -> float:
    """Seconds until settings that were timed are an answer: a comparison and a long probe."""
    size = view.reference
    steps = [] if view.trusted(settings) else [Form.COMPARE]
    questions = [view.question(settings, size, form, Reason.CERTIFY) for form in (*steps, Form.LONG)]
    return sum(view.spending.expected_s(question) for question in questions)


def eager(settings: Settings) -> Settings:
    """The same without compiling."""
    return replace(settings, compile=Compile.OFF, activation_budget=1.0)


def size_to_grow_to(view: View, row: Row, *, compiled: bool = False) -> int | None:
    """A size that memory leaves room for, and from which on throughput grows little more; None where nothing is known.

    Args:
        compiled: for the same settings, compiled, of which nothing was measured yet.
    """
    limit, best = expected_limit(row), view.goal.best(row)
    if limit is None or best is None:
        return None
    if view.sizes.share is not None and not compiled and not compiles(row.settings):
        top = view.sizes.down(limit)  # below a divisor the next is often half: that is worth a probe that may fail
    else:
        safe = SAFE_SHARE * limit if compiled else best.size + round(SAFE_SHARE * (limit - best.size))
        top = view.sizes.down(safe)
    if top is None:
        return None
    saturation = view.saturation_of(row).of_faster(_COMPILED if compiled else 1.0)
    enough = min(top, max(best.size, ceil(saturation.enough(top, _NEARLY))))
    size = view.sizes.down(enough) if view.sizes.share is None else view.sizes.up(enough, top)
    rounder = view.sizes.round(size) if size else None
    return rounder if rounder and size and saturation.gain(rounder, size) < _NEARLY else size


def _size(view: View, settings: Settings) -> int:
    """The reference; where each size costs a compile, at once the one that will probably be recommended."""
    if not compiles(settings) or view.asked.objective is not Objective.THROUGHPUT:
        return view.reference
    compiled = [row for row in view.table.alive if compiles(row.settings) and row.speeds]
    best = max((view.goal.best(row) for row in compiled), default=None, key=lambda best: best.value if best else 0.0)
    twin = view.table.row(eager(settings))
    usual = best.size if best else min(view.reference, max(twin.speeds, default=view.reference))
    larger = size_to_grow_to(view, twin, compiled=True) if twin.speeds else None
    return larger if larger and larger >= (_MUCH_LARGER if best else 1) * usual else usual


def _shrunk(view: View, row: Row) -> int | None:
    tries = 1 if compiles(row.settings) else _SHRINKS
    if not row.too_large or len(row.too_large) > tries or view.asked.objective is Objective.MEMORY:
        return None
    return view.sizes.round(row.too_large[0] / 2)
