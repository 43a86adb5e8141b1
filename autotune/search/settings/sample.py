"""What is left after all single changes: combinations that the sampler proposes and that may still win."""

from autotune.model import Question, Reason
from autotune.search.settings.choose import leader
from autotune.search.settings.explore import WORTH_A_PROBE, approach, first_of_all, improvement, worth
from autotune.search.settings.sampler import Told, proposals
from autotune.search.settings.view import View

_OPTIMISM = 2.0
"""Deviations above its mean at which a proposal has to beat the best."""


def sample(view: View) -> Question | None:
    """The proposal that is worth the most for its cost; None once none is worth a probe, or as many were tried as may be."""
    tried = {row.settings for row in view.table.rows.values() if row.asked_for(Reason.SAMPLED)}
    if len(tried) >= view.asked.trials:
        return None
    lead = leader(view)
    best = view.best_level
    offers: list[tuple[float, Question]] = []
    for settings in proposals(view.asked.space, _told(view), view.asked.seed):
        if settings in view.table.rows or not view.allowed(settings):
            continue
        expected = view.expect(settings)
        gain = improvement(view, settings, lead)
        if expected.mean + _OPTIMISM * expected.deviation <= best + WORTH_A_PROBE or gain < worth(settings):
            continue
        question = approach(view, settings, Reason.SAMPLED)
        if question is not None:
            offers.append((gain / view.spending.expected_s(question), question))
    return first_of_all(view, lead, max(offers, key=lambda offer: offer[0])[1]) if offers else None


def _told(view: View) -> list[Told]:
    levels = {row.settings: view.level(row) for row in view.table.rows.values()}
    worst = min(level for level in levels.values() if level is not None)
    return [
        Told(
            row.settings,
            worst if (level := levels[row.settings]) is None else level,
            feasible=level is not None and not view.table.faulty(row),
        )
        for row in view.table.rows.values()
    ]
