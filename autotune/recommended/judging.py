"""From a probe of a recommendation's batch to a verdict on the file. Pure."""

from autotune.errors import EnvironmentTrouble, UsageError
from autotune.model import Answer, Cause, Evaluation, Outcome, Plan, ProbeResult
from autotune.report.document import settings_of
from autotune.report.fields import Document

AT = ("recommended", "max")
"""Which of the file's batches is probed: what will be trained, or its limit."""


def batch_of(content: Document, at: str) -> int:
    """The size to probe.

    Raises:
        UsageError: ``at`` is none of ``AT``.
    """
    if at not in AT:
        raise UsageError(f"at {at!r} is not known", hint=f"use one of {', '.join(AT)}")
    return content.batch.max_batch if at == "max" else content.batch.micro_batch


def claimed_answer(content: Document, batch: int, plan: Plan) -> Answer:
    """What the file says of this size, as an answer to confirm."""
    evaluation = content.evaluation
    return Answer(
        max_batch=batch,
        refuted_at=None,
        recommended_batch=batch,
        limited_by="max_batch",  # nothing larger was tried
        step=plan.multiple_of,
        settings=settings_of(content),
        evaluation=Evaluation(
            max_batch=evaluation.max_batch, refuted_at=evaluation.refuted_at, limited_by=evaluation.limited_by
        )
        if evaluation
        else None,
    )


def workload_failed(probe: ProbeResult) -> bool:
    """Whether the training raised by itself, which says nothing of the file."""
    return probe.outcome is Outcome.WORKLOAD_ERROR and not _is_trouble(probe)


def trouble(probe: ProbeResult) -> EnvironmentTrouble | None:
    """What of the machine stood in the way, so that the probe says nothing of the file; None if nothing did."""
    if not _is_trouble(probe):
        return None
    failure = probe.failure
    what = failure.message if failure else probe.outcome.value
    return EnvironmentTrouble(
        f"batch {probe.batch_size} cannot be judged: {what}",
        detail=(failure.traceback if failure else "") or probe.stderr_tail,
        hint=(failure.hint if failure else "") or "put that right, then check again",
    )


def _is_trouble(probe: ProbeResult) -> bool:
    cause = probe.failure.cause if probe.failure else None
    return probe.outcome is Outcome.UNRELIABLE or cause in (Cause.ENVIRONMENT, Cause.OTHERS)
