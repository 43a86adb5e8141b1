"""Everything a decision of the settings search looks at, worked out of one history."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from math import exp, log

from autotune.model import Form, Objective, ProbeResult, Question, Reason, Settings
from autotune.search.apart import plain
from autotune.search.legal import legal_step
from autotune.search.settings.asked import Asked
from autotune.search.settings.effects import Effects, Expectation
from autotune.search.settings.goal import Goal
from autotune.search.settings.priors import features, of_room, of_speed
from autotune.search.settings.room import Saturation, saturation
from autotune.search.settings.rows import Row
from autotune.search.settings.sizes import Sizes
from autotune.search.settings.spending import Spending
from autotune.search.settings.table import Guard, Table

INTERPLAY = 0.012
"""Deviation (logarithm) of a knob's effect from one combination to the next; known exceptions are effects of their own. Fused
AdamW on an H200: 0 to 0.03, most below 0.01."""
_FLAT = 0.98
"""A smaller size with this share of the throughput is the better one to compare settings at."""
_CANDIDATES = frozenset({Reason.KNOWN, Reason.CHANGE, Reason.SAMPLED, Reason.LARGER})


@dataclass(frozen=True)
class View:
    """One history, looked at."""

    asked: Asked
    history: tuple[ProbeResult, ...]

    @classmethod
    def of(cls, asked: Asked, history: Sequence[ProbeResult]) -> "View":
        """Of the probes that belong to the search."""
        return cls(asked, tuple(probe for probe in history if asked.concerns(probe)))

    @cached_property
    def table(self) -> Table:
        """By settings of the space."""
        return Table(self._candidates, self.asked.base, frozenset(self.opening.evidence.accepted))

    @property
    def origin(self) -> Settings:
        """These settings: the user's own, or the first that fit where those do not at all. Plain."""
        return self.opening.settings

    @property
    def rescued(self) -> bool:
        """Whether the user's own settings fit at no size."""
        return self.origin != self.asked.base

    @cached_property
    def sizes(self) -> Sizes:
        """Legal sizes, as far as the opening showed what is legal."""
        bound = min([self.asked.bound, *([end] if (end := self.opening.evidence.data_end) else [])])
        return Sizes(
            unit=legal_step(self.opening.evidence, self.asked.batch_finder.multiple_of),
            bound=bound,
            accumulate=self.asked.space.base.accumulate,
            share=self.asked.share,
        )

    @property
    def opened(self) -> bool:
        """Whether there is something to compare candidates with."""
        row = self.opening
        return bool(row.certified) and any(self.sizes.down(size) == size for size in row.speeds)

    @cached_property
    def reference(self) -> int:
        """The size at which settings are compared: the smallest at which the origin is about as fast as anywhere.

        Raises:
            ValueError: the opening is not over.
        """
        legal = {n: s for n, s in self.opening.speeds.items() if self.sizes.down(n) == n}
        if self.asked.objective is Objective.MEMORY:
            return max(n for n in legal if n in self.opening.certified or len(legal) == 1)
        return min(n for n, speed in legal.items() if speed >= _FLAT * max(legal.values()))

    @cached_property
    def goal(self) -> Goal:
        """What settings are measured by."""
        return Goal(self.asked.objective, self.reference)

    @cached_property
    def spending(self) -> Spending:
        """What was spent, and what may be."""
        asked = self.asked
        return Spending(self.history, asked.base, asked.time_budget_s, asked.compile_share, asked.gone_s)

    @cached_property
    def saturation(self) -> Saturation:
        """Of the origin; believed to be mild where it was timed at one size only."""
        return saturation(self.opening.speeds) or Saturation(self.reference / 20)

    def saturation_of(self, row: Row) -> Saturation:
        """Of other settings: by their own times, or by how much faster than the origin they are."""
        own = saturation(row.speeds)
        if own is not None or not row.speeds:
            return own or self.saturation
        size, speed = next(iter(row.speeds.items()))
        there = self.opening.speeds[self.reference] * exp(self.saturation.gain(self.reference, size))
        return self.saturation.of_faster(speed / there)

    def level(self, row: Row) -> float | None:
        """The goal's logarithm at the reference size; None where nothing was measured."""
        found = self.goal.best(row)
        if found is None or self.asked.objective is not Objective.THROUGHPUT:
            return found.value if found else None
        size = min(row.timed, key=lambda n: abs(log(n / self.reference)))
        return log(row.timed[size]) - self.saturation_of(row).gain(self.reference, size)

    @cached_property
    def best_level(self) -> float:
        """The highest level of settings that may be recommended."""
        return max(level for row in self.table.alive if (level := self.level(row)) is not None)

    @cached_property
    def effects(self) -> Effects:
        """What each knob is worth, by all that was measured; settings that were rejected tell it as well."""
        throughput = self.asked.objective is Objective.THROUGHPUT
        launching = self.saturation.half / (self.saturation.half + self.reference)
        prior = of_speed(self.asked.space.device, launching) if throughput else of_room()
        effects = Effects(prior, INTERPLAY)
        for row in self.table.rows.values():
            level = self.level(row)
            if level is not None:
                effects.learn(features(row.settings), level)
        return effects

    def expect(self, settings: Settings) -> Expectation:
        """The goal's logarithm that settings should reach at the reference size."""
        return self.effects.predict(features(settings))

    def trusted(self, settings: Settings) -> bool:
        """Whether nothing speaks against recommending the settings, as far as training the same goes."""
        return self.guard(settings) is Guard.ACCEPTED

    def guard(self, settings: Settings) -> Guard:
        """As the table has it; where the user's own settings do not fit, nothing can be compared with them."""
        if not self.asked.compares:
            return Guard.ACCEPTED
        found = self.table.guard(settings)
        if found is Guard.UNKNOWN:
            too_large = self.table.comparisons(settings).too_large
            if too_large is not None and too_large <= self.sizes.unit:
                return Guard.ACCEPTED if plain(settings) == self.origin else Guard.REJECTED
        return found

    def allowed(self, settings: Settings) -> bool:
        """Whether settings may be tried: in the space, not to blame for anything."""
        with_accumulation = self.sizes.timed(settings, self.reference)
        return not self.asked.space.refuses(with_accumulation) and not self.table.blames(settings)

    def question(self, settings: Settings, size: int, form: Form, reason: Reason) -> Question:
        """A probe under these settings; the long form with the accumulation of a training."""
        made = self.sizes.trained(settings, size) if form is Form.LONG else self.sizes.timed(settings, size)
        return Question(batch_size=size, form=form, reason=reason, settings=made)

    @property
    def started(self) -> bool:
        """Whether candidates were measured."""
        return any(map(_measures_candidate, self.history))

    def row_of(self, settings: Settings) -> Row:
        """All probes of the settings, be it that only the search for the limit tried them (another allocator)."""
        return Table(self.history, self.asked.base).row(settings)

    @property
    def _candidates(self) -> tuple[ProbeResult, ...]:
        return tuple(probe for probe in self.history if self.asked.knows(probe.settings))

    @cached_property
    def opening(self) -> Row:
        """What the probes before the first candidate say of the settings that all others are compared with."""
        before = tuple(takewhile(lambda probe: not _measures_candidate(probe), self._candidates))
        first = self._origin_of(before)
        if first.certified or len(before) == len(self._candidates):
            return first
        return self._origin_of(self._candidates)  # probes of the opening are missing; they were made up for later

    def _origin_of(self, probes: tuple[ProbeResult, ...]) -> Row:
        table = Table(probes, self.asked.base)
        own = table.row(self.asked.base)
        if own.evidence.good or not own.probes:
            return own
        rejected = Table(self._candidates, self.asked.base)
        others = [row for row in table.rows.values() if row.evidence.good]
        return next((row for row in others if rejected.guard(row.settings) is not Guard.REJECTED), own)


def _measures_candidate(probe: ProbeResult) -> bool:
    return probe.form is Form.TIMED and probe.reason in _CANDIDATES
