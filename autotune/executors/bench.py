"""Several workers as ``ahead`` sees them: probes are handed out, and come back finished or lost."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol, runtime_checkable

from autotune.model import Budget, Cause, Failure, Measurement, Outcome, ProbeResult, Question


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """A probe that has no answer, because its worker is gone: preempted, killed, its host or cluster restarted."""

    worker: str
    why: str

    def result(self, question: Question, budget: Budget, began: datetime, seconds: float) -> ProbeResult:
        """What the ledger keeps of it: it proves nothing, least of all that memory ran out."""
        return ProbeResult(
            batch_size=question.batch_size,
            form=question.form,
            reason=question.reason,
            outcome=Outcome.UNRELIABLE,
            failure=Failure(cause=Cause.LOST, message=f"{self.worker} was lost: {self.why}"),
            measurement=Measurement(),
            budget_bytes=budget.limit_bytes,
            launcher="lost",
            started_at=began.astimezone(UTC),
            seconds=seconds,
            settings=question.settings,
            evaluate_at=question.evaluate_at,
        )


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of one probe that was handed out."""

    ticket: int
    end: ProbeResult | Lost | Exception
    """An exception is one that the probe of a single device would have raised."""


@runtime_checkable
class Bench(Protocol):
    """Runs probes on workers that are alike."""

    @property
    def width(self) -> int:
        """Workers there are, busy or not, those that are being started included."""
        ...

    @property
    def idle(self) -> int:
        """Workers that could begin a probe at once."""
        ...

    def submit(self, question: Question, budget: Budget, reserve_bytes: int) -> int:
        """Hand out a probe; it waits if no worker is idle. Returns its ticket.

        Raises:
            EnvironmentTrouble: there is no worker left, and none can be started.
        """
        ...

    def wait(self, timeout_s: float) -> Sequence[Finished]:
        """Probes that ended since the last call; waits for one, but no longer than this. May be empty.

        Raises:
            EnvironmentTrouble: there is no worker left, and none can be started.
        """
        ...

    def drop(self, ticket: int) -> None:
        """Nobody wants this probe any more: it is not begun, or its end not told."""
        ...
