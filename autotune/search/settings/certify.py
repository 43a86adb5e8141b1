"""From the best settings to an answer: certified in the long form, at the size and accumulation that are recommended."""

from autotune.model import Answer, Form, Objective, Question, Reason, Settings, Stop
from autotune.search.batch import NOT_SEARCHED
from autotune.search.settings.guard import compare_accumulation
from autotune.search.settings.leg import ask_leg
from autotune.search.settings.rows import Row
from autotune.search.settings.spending import compiles
from autotune.search.settings.view import View

_SMALLER = 0.85
"""The next size after one that is not safe in the long form after all."""
_FAILURES = 4
"""Sizes that may fail so before the settings are given up."""


def certify(view: View, row: Row, *, in_a_hurry: bool) -> Question | Answer | None:
    """The probe that is needed, or the answer; None if the settings are safe at no size worth having.

    Args:
        row: of the settings that were chosen.
        in_a_hurry: leave out the search for the largest batch.
    """
    if in_a_hurry or not searches_limit(view, row.settings):
        return _at_one_size(view, row)
    settings = row.settings
    reply = ask_leg(
        view, settings, recommend=view.asked.batch_finder.recommend and _throughput(view), allocators=_throughput(view)
    )
    return reply.answer if isinstance(reply, Stop) else reply


def searches_limit(view: View, settings: Settings) -> bool:
    """Whether the largest batch of these settings is looked for. Compiled settings' is not: each size would cost a
    compile. Nor is it where only some sizes are wanted, or where nothing foretells the limit: it may be far above the best
    size, and twenty probes away."""
    match view.asked.objective:
        case Objective.MEMORY:
            return False
        case Objective.BATCH:
            return view.asked.share is None
        case Objective.THROUGHPUT:
            near = view.asked.batch_finder.trace or settings == view.asked.base
            return near and view.asked.share is None and not compiles(settings)


def _throughput(view: View) -> bool:
    return view.asked.objective is Objective.THROUGHPUT


def _at_one_size(view: View, row: Row) -> Question | Answer | None:
    """Certify the best size, or a smaller one."""
    best = view.goal.best(row)
    size: int | None = view.sizes.down(best.size) if best is not None else None
    failures = 0
    while size is not None:
        trained = view.sizes.trained(row.settings, size)
        tried = [p for p in row.probes if p.batch_size == size and p.form is Form.LONG and p.settings == trained]
        if not tried:
            accumulating = compare_accumulation(view, trained.accumulate)
            return accumulating or view.question(row.settings, size, Form.LONG, Reason.CERTIFY)
        if tried[-1].fits:
            return answer_at(view, row, size)
        failures += 1
        if not tried[-1].outcome.is_ceiling or failures > _FAILURES or view.asked.objective is Objective.MEMORY:
            return None
        size = view.sizes.down(min(_SMALLER * size, size - 1))
    return None


def answer_at(view: View, row: Row, size: int, *, complete: bool = True) -> Answer:
    """The answer at a size that is certified with the accumulation of a training; the largest that is may be above it."""
    trained = view.sizes.trained(row.settings, size)
    alike = [p for p in row.probes if p.settings == trained]
    certified = [p.batch_size for p in alike if p.form is Form.LONG and p.fits and p.batch_size in row.certified]
    largest = max([size, *(n for n in certified if view.sizes.down(n) == n)])
    refuted = min((p.batch_size for p in alike if p.outcome.is_ceiling and p.batch_size > largest), default=None)
    cause = next((p.failure.cause for p in row.probes if p.batch_size == refuted and p.failure), None)
    return Answer(
        max_batch=largest,
        refuted_at=refuted,
        recommended_batch=size,
        limited_by=str(cause) if cause else NOT_SEARCHED,
        step=view.sizes.unit,
        settings=trained,
        complete=complete,
    )
