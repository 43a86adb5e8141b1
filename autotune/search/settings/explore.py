"""Which settings to try next: those known to pay, then changes of the best so far by what they may bring and what they cost."""

from dataclasses import replace
from math import exp
from typing import NamedTuple

from autotune.model import Compile, Objective, Question, Reason, Settings
from autotune.search.settings.candidates import affordable, eager, measure
from autotune.search.settings.choose import leader
from autotune.search.settings.guard import compare
from autotune.search.settings.known import bundles, to_compile
from autotune.search.settings.larger import grow_compiled
from autotune.search.settings.priors import CHECKPOINTED, features, of_room
from autotune.search.settings.room import expected_limit
from autotune.search.settings.rows import Row
from autotune.search.settings.spending import compiles
from autotune.search.settings.view import View

WORTH_A_PROBE = 0.01
"""Expected improvement (share) from which on settings are tried."""
WORTH_A_COMPILE = 0.02
_KNOWN_WELL = 0.02
"""Deviation below which a probe would tell nothing new."""


def explore(view: View) -> Question | None:
    """The next probe; None once nothing that is left promises enough for its cost."""
    for settings in bundles(view):
        question = measure(view, settings, Reason.KNOWN)
        if question is not None:
            return question
    lead = leader(view)
    if not compiles(lead.settings):
        doubtful = compare(view, lead.settings)
        if doubtful is not None and affordable(view, doubtful):
            return doubtful
    first = to_compile(view, lead)
    compiling = measure(view, first, Reason.KNOWN) if first is not None else None
    if first is not None and compiling is not None:
        return _before_compiling(view, lead, first) or compiling
    return _change(view, lead)


def _before_compiling(view: View, lead: Row, compiled: Settings) -> Question | None:
    """Single changes that may be worth compiling with, so that it is done once: tried without first."""
    best: tuple[float, Question] | None = None
    for settings in view.asked.space.neighbours(lead.settings):
        if compiles(settings) or settings in view.table.rows or not view.allowed(settings):
            continue
        both = replace(settings, compile=compiled.compile)
        expected = view.effects.difference(features(both), features(compiled)).improvement(0.0)
        question = measure(view, settings, Reason.CHANGE) if expected >= WORTH_A_PROBE else None
        if question is not None and (best is None or expected > best[0]):
            best = expected, question
    return best[1] if best else None


def improvement(view: View, settings: Settings, lead: Row) -> float:
    """Expected improvement over the best so far, at the reference size or, for what makes room, at a larger one."""
    best = view.best_level
    expected = view.expect(settings)
    return replace(expected, mean=expected.mean + _for_room(view, settings, lead)).improvement(best)


def worth(settings: Settings) -> float:
    """How much improvement has to be expected of settings before they are tried."""
    return WORTH_A_COMPILE if compiles(settings) else WORTH_A_PROBE


class _Offer(NamedTuple):
    per_second: float
    order: int
    question: Question


def _change(view: View, lead: Row) -> Question | None:
    """The best settings with one knob changed, or the best of those that do not compile, by expected improvement a second."""
    offers: list[_Offer] = []
    for settings in _around(view, lead):
        if view.table.row(settings).evidence.good or not view.allowed(settings):
            continue
        expected = improvement(view, settings, lead)
        if expected < worth(settings):
            continue
        question = approach(view, settings, Reason.CHANGE)
        if question is None:
            continue
        cost = view.spending.expected_s(question)
        offers.append(_Offer(expected / cost, -len(offers), question))
    offer = max(offers, default=None, key=lambda offer: offer[:2])
    if offer is None:
        return None
    return first_of_all(view, lead, offer.question)


def first_of_all(view: View, lead: Row, question: Question) -> Question:
    """The probe, or what comes before it: what another compile is built upon has to be sound, and at the size that counts."""
    if not (compiles(question.settings) and compiles(lead.settings)):
        return question
    sound = any(compiles(row.settings) and view.trusted(row.settings) for row in view.table.alive)
    doubtful = None if sound else compare(view, lead.settings)
    return doubtful or grow_compiled(view, lead) or question


def _around(view: View, lead: Row) -> list[Settings]:
    """What differs in one knob from the best; if that compiles, also what does not and differs so from the best that does not."""
    around = list(view.asked.space.neighbours(lead.settings))
    if compiles(lead.settings):
        plain = {
            row.settings: best.value
            for row in view.table.alive
            if not compiles(row.settings) and view.trusted(row.settings) and (best := view.goal.best(row)) is not None
        }
        other = max(plain, key=lambda settings: plain[settings], default=lead.settings)
        around += [settings for settings in view.asked.space.neighbours(other) if not compiles(settings)]
    return [settings for settings in dict.fromkeys(around) if _in_turn(view, settings)]


def _in_turn(view: View, settings: Settings) -> bool:
    """The compiler's plain mode comes before its others, which it tells most about."""
    if settings.compile in (Compile.OFF, Compile.DEFAULT) or Compile.DEFAULT not in view.asked.space.values("compile"):
        return True
    return any(row.settings.compile is Compile.DEFAULT for row in view.table.rows.values())


def approach(view: View, settings: Settings, reason: Reason) -> Question | None:
    """The probe on the way to these settings; None where they cannot be had, or cost too much.

    What compiles is first tried without, unless what is not known is mostly the compiling: it costs a tenth, and tells most of
    what the change is worth.
    """
    question = measure(view, settings, reason)
    plain = eager(settings)
    if question is None or plain == settings or plain in view.table.rows or not view.allowed(plain):
        return question
    if view.expect(plain).deviation < max(_KNOWN_WELL, view.expect(settings).deviation / 2):
        return question
    return measure(view, plain, reason) or question


def _for_room(view: View, settings: Settings, lead: Row) -> float:
    """What the larger batch brings that checkpointing makes room for."""
    if view.asked.objective is not Objective.THROUGHPUT:
        return 0.0
    limit, share = expected_limit(lead), features(settings).get(CHECKPOINTED, 0.0)
    if limit is None or not share or CHECKPOINTED in features(lead.settings):
        return 0.0
    alike = [row for row in view.table.alive if features(row.settings).get(CHECKPOINTED, 0.0) == share]
    known = [larger for row in alike if (larger := expected_limit(row)) is not None]
    times = max(known) / limit if known else exp(of_room()[CHECKPOINTED].mean * share)
    larger = min(round(times * limit), view.sizes.bound)
    return view.saturation_of(lead).gain(limit, larger) if larger > limit else 0.0
