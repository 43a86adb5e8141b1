"""A search of the batch alone that is short of time: what fits so far is certified while there is time to. Settings plan by
themselves.

Without this a search whose limit is looked for by short probes ends with sizes that fit and with nothing certified.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autotune.model import Form, ProbeResult, Question, Reason, Stop
from autotune.search.allocators import BestAllocator
from autotune.search.evidence import Standing, read

_LONGER = Form.LONG.steps / Form.SHORT.steps
"""The long form takes so many times as long as the short one, if all of it were steps."""
_ASKED = 2
"""What is asked next may take so many times as long as the size to certify: a search grows by doubling."""


@dataclass(frozen=True, kw_only=True)
class InTime:
    """A strategy: what ``finder`` asks, as long as the largest size that fits can still be certified after it."""

    finder: BestAllocator
    time_budget_s: float
    gone_s: Callable[[Sequence[ProbeResult]], float]
    """Seconds of it that are gone."""
    varies: bool = False
    """As in ``BatchFinder``: mixtures of lengths make the long form longer."""

    def ask(self, history: Sequence[ProbeResult]) -> Question | Stop:
        """Return the next probe or stop."""
        reply = self.finder.ask(history)
        if isinstance(reply, Stop) or reply.form is Form.LONG or self.conclude(history) is not None:
            return reply
        findings = read([p for p in history if p.settings == reply.settings]).findings.values()
        fitting = [f for f in findings if f.standing is Standing.FITS_SHORT and f.probe.reason is not Reason.TRACE]
        if not fitting:
            return reply
        best = fitting[-1].probe
        left_s = self.time_budget_s - self.gone_s(history)
        if left_s >= best.seconds * (_ASKED + self._longer):
            return reply
        return Question(batch_size=best.batch_size, form=Form.LONG, reason=Reason.CERTIFY, settings=reply.settings)

    def conclude(self, history: Sequence[ProbeResult]) -> Stop | None:
        """The best answer that stands, as of ``BestAllocator``."""
        return self.finder.conclude(history)

    @property
    def _longer(self) -> float:
        mixed = sum(map(len, Form.LONG.mixtures)) if self.varies else 0
        return _LONGER + mixed / Form.SHORT.steps
