"""What a search tells where nobody else listens."""

import logging

from autotune.arguments import shown
from autotune.errors import UsageError
from autotune.masked import without_passwords
from autotune.model import Budget, Machine, ProbeResult, Question, WorkloadInfo
from autotune.ports import SearchObserver
from autotune.units import format_bytes

_log = logging.getLogger("autotune")


class LogObserver:
    """Tells the ``autotune`` logger, level INFO, what happens."""

    def found(self, workload: WorkloadInfo, machine: Machine, budget: Budget) -> None:
        """The search begins."""
        _log.info(
            "%s on %s, budget %s",
            without_passwords(workload.ref),
            machine.device_name,
            format_bytes(budget.limit_bytes),
        )

    def note(self, text: str) -> None:
        """Said once."""
        _log.info("%s", text)

    def asked(self, question: Question, number: int) -> None:
        """A probe is about to start."""
        apart = "" if question.evaluate_at is None else f", evaluation at {question.evaluate_at}"
        _log.info("probe %d: batch %d%s, %s (%s)", number, question.batch_size, apart, question.form, question.reason)

    def answered(self, result: ProbeResult, number: int) -> None:
        """A probe is finished."""
        _log.info("probe %d: batch %d: %s in %.1f s", number, result.batch_size, result.outcome, result.seconds)


def listening(observer: SearchObserver | None) -> SearchObserver:
    """The observer that was given, or else the logger.

    Raises:
        UsageError: it lacks a method.
    """
    for name in ("found", "note", "asked", "answered"):
        if observer is not None and not callable(getattr(observer, name, None)):
            raise UsageError(f"observer {shown(observer)} has no {name}()", hint="give what api.LogObserver() has")
    return LogObserver() if observer is None else observer
