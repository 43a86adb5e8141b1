"""What a search has cost, what the next probe will, and how much of it compiling may take."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median

from autotune.model import Compile, Form, ProbeResult, Question, Settings
from autotune.search.apart import plain

_FIRST_COMPILE_S = 40.0
"""Before one was seen: GPT-2 124M and ResNet-50 took 36 and 40 s on an H200, with nothing cached."""
_CACHED_SHARE = 0.25
"""Of a compile that is done again with the same settings and size: kernels are cached, tracing is not. GPT-2 5 s, of 36."""
_EAGER_S = 4.0
"""A probe that compiles nothing, before one was seen."""
_COMPARING = 1.5
"""A comparison trains twice, in fewer steps."""
_COMPILES = 3
"""Different pairs of settings and size that may be compiled where no time budget says how much time there is."""


def spent(history: Sequence[ProbeResult]) -> float:
    """Seconds that all probes took."""
    return sum(probe.seconds for probe in history)


def compiles(settings: Settings) -> bool:
    """Whether the first step compiles."""
    return settings.compile is not Compile.OFF


def compile_seconds(probe: ProbeResult) -> float:
    """How much of a probe went into compiling: its first step, all but a usual one; 0 where nothing is compiled.

    A probe that failed before it could say how long that took counts whole.
    """
    if not compiles(probe.settings):
        return 0.0
    first, usual = probe.measurement.first_step_seconds, probe.measurement.median_step_seconds
    return probe.seconds if first is None else max(0.0, first - (usual or 0.0))


@dataclass(frozen=True)
class Spending:
    """The account of a search."""

    history: Sequence[ProbeResult]
    own: Settings
    """The user's; if these compile, that is not counted against the number of compiles."""
    time_budget_s: float | None
    compile_share: float
    """Of the time budget that may go into compiling."""
    gone_s: Callable[[Sequence[ProbeResult]], float] = spent
    """As ``SettingsFinder.gone_s``."""

    @cached_property
    def total_s(self) -> float:
        """Seconds of the time budget that are gone."""
        return self.gone_s(self.history)

    @cached_property
    def compile_s(self) -> float:
        """Spent on compiling so far."""
        return sum(compile_seconds(probe) for probe in self.history)

    @cached_property
    def eager_s(self) -> float:
        """A usual probe that compiles nothing."""
        seen = [p.seconds for p in self.history if not compiles(p.settings) and p.fits and p.form is not Form.COMPARE]
        return median(seen) if seen else _EAGER_S

    @cached_property
    def compile_once_s(self) -> float:
        """A compile with nothing cached."""
        return max((seconds for p in self.history if (seconds := compile_seconds(p))), default=_FIRST_COMPILE_S)

    def expected_s(self, question: Question) -> float:
        """Seconds that the probe will take, by those of its kind so far."""
        seconds = self.eager_s * (_COMPARING if question.form is Form.COMPARE else 1.0)
        if compiles(question.settings):
            again = question.form is not Form.COMPARE and self._compiled(question)
            seconds += self.compile_once_s * (_CACHED_SHARE if again else 1.0)
        return seconds

    def may_compile(self, question: Question) -> bool:
        """Whether compiling for this probe is within bounds, and once more to show that it trains the same."""
        if not compiles(question.settings) or self._compiled(question):
            return True
        if self.time_budget_s is None:
            return len(self._pairs) < _COMPILES
        return self.compile_s + 2 * self.compile_once_s <= self.compile_share * self.time_budget_s

    def leaves(self, question: Question, afterwards_s: float) -> bool:
        """Whether the time budget has room for the probe and for so much after it."""
        if self.time_budget_s is None:
            return True
        return self.total_s + self.expected_s(question) + afterwards_s <= self.time_budget_s

    @cached_property
    def _pairs(self) -> frozenset[tuple[Settings, int]]:
        return frozenset(
            (plain(p.settings), p.batch_size)
            for p in self.history
            if compiles(p.settings) and p.form is not Form.COMPARE and plain(p.settings) != plain(self.own)
        )

    def _compiled(self, question: Question) -> bool:
        return (plain(question.settings), question.batch_size) in self._pairs
