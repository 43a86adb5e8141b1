"""What was seen of a training becomes what is said of it. Pure."""

from autotune.model import Failure, LeakEvidence, Leaks


def judge_leaks(evidence: LeakEvidence, failure: Failure | None) -> Leaks:
    """``failure``: what ended the steps too early; only an out-of-memory comes here."""
    return Leaks(steps=evidence.steps, device=None, host=None, died_at_step=failure.step if failure else None)
