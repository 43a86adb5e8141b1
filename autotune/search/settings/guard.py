"""Asking whether settings train the same as the user's own, before they are recommended or built upon."""

from autotune.model import Form, Outcome, Question, Reason, Settings
from autotune.search.settings.table import Guard
from autotune.search.settings.view import View

_LARGEST = 8
"""Samples are enough to compare gradients on; fewer where not so many fit."""


def compare(view: View, settings: Settings) -> Question | None:
    """The comparison that is needed; None where it is known whether they do."""
    if view.guard(settings) is not Guard.UNKNOWN:
        return None
    reference = view.asked.base if settings == view.origin else view.origin
    return Question(
        batch_size=_size(view, settings),
        form=Form.COMPARE,
        reason=Reason.COMPARE,
        settings=settings,
        reference=reference,
    )


def compare_accumulation(view: View, accumulate: int) -> Question | None:
    """Whether several micro-batches are the same as one batch, for the record: asked once, where the user had only one."""
    base = view.asked.base
    asked = any(p.form is Form.COMPARE and p.settings.accumulate > 1 for p in view.history)
    if accumulate == 1 or not view.asked.compares or view.asked.space.base.accumulate > 1 or view.rescued or asked:
        return None
    settings = view.sizes.timed(base, view.reference)
    if settings == base:
        return None
    return Question(
        batch_size=_size(view, base), form=Form.COMPARE, reason=Reason.COMPARE, settings=settings, reference=base
    )


def accumulation_differs(view: View) -> bool:
    """Whether that comparison said no."""
    compared = [p for p in view.history if p.form is Form.COMPARE and p.settings.accumulate > 1]
    return any(p.outcome is Outcome.CHANGES_TRAINING for p in compared)


def _size(view: View, settings: Settings) -> int:
    unit = view.sizes.unit
    if settings == view.origin and view.rescued:
        return unit  # the user's own settings do not fit, but without an optimizer step of full size they might
    too_large = view.table.comparisons(settings).too_large
    top = min(_LARGEST, view.reference, *([too_large // 2] if too_large else []))
    return max(unit, top // unit * unit)
