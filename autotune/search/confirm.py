"""Checking that an answer from the ledger still holds."""

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.model import Answer, Form, ProbeResult, Question, Reason, Settings, Stop
from autotune.search.evidence import Standing, read
from autotune.search.trouble import describe


@dataclass(frozen=True, slots=True)
class ConfirmKnown:
    """A strategy of one long probe at the size of an earlier answer (more only if that probe is inconclusive)."""

    answer: Answer
    settings: Settings
    """What it holds for."""
    told_by: str = "the ledger"
    """Who claims it."""

    def ask(self, history: Sequence[ProbeResult]) -> Question | Stop:
        """Ask for the probe, then stop: with the earlier answer if it fitted, without one if it did not."""
        size = self.answer.max_batch
        here = [p for p in history if p.batch_size == size]
        if all(p.reason is not Reason.CONFIRM for p in here):
            # Any other probe is what the earlier answer rests on, not a check of it.
            return self._question(Reason.CONFIRM)
        finding = read(here).findings[size]
        if finding.standing is Standing.OPEN:
            return self._question(Reason.RETRY)
        if finding.standing is Standing.CERTIFIED:
            return Stop(reason=f"Batch {size} from {self.told_by} fits again.", answer=self.answer)
        return Stop(reason=f"The answer from {self.told_by} no longer holds: {describe(finding)}.", answer=None)

    def _question(self, reason: Reason) -> Question:
        """The long probe, with the evaluation that goes with the answer."""
        size, evaluation = self.answer.max_batch, self.answer.evaluation
        evaluate_at = None
        if evaluation is not None and evaluation.max_batch != size:
            evaluate_at = evaluation.max_batch or 0
        return Question(batch_size=size, form=Form.LONG, reason=reason, settings=self.settings, evaluate_at=evaluate_at)
