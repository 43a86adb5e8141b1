"""From a probe of a recommendation's batch to a verdict on the file. Pure."""

from collections.abc import Sequence

from autotune.errors import UsageError
from autotune.model import Answer, Cause, Evaluation, Outcome, Plan, ProbeResult
from autotune.report.document import settings_of
from autotune.report.fields import Document

AT = ("recommended", "max")
"""Which of the file's batches is probed: what will be trained, or its limit."""

_NOT_THE_FILES_FAULT = frozenset({Cause.ENVIRONMENT, Cause.OTHERS})


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


def proves_nothing_of_the_file(probes: Sequence[ProbeResult]) -> bool:
    """Whether the last probe failed for a reason that is neither the file's nor its batch's: the training itself raised,
    or the machine stood in the way."""
    last = probes[-1]
    cause = last.failure.cause if last.failure else None
    return last.outcome in (Outcome.WORKLOAD_ERROR, Outcome.UNRELIABLE) or cause in _NOT_THE_FILES_FAULT
