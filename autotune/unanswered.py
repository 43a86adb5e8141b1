"""The error that a search without an answer ends with: what failed, where, and what to do next."""

from collections.abc import Sequence

from autotune.errors import AutotuneError, EnvironmentTrouble, NothingFits, WorkloadError
from autotune.model import Outcome, Precision, ProbeResult, WorkloadInfo


def no_answer(probes: Sequence[ProbeResult], workload: WorkloadInfo, precision: Precision) -> AutotuneError:
    """The error for a search that ended without an answer."""
    from autotune.report.memory_split import memory_split
    from autotune.search.apart import Apart
    from autotune.search.verdict import Ending, why_nothing

    training = Apart.of(probes).training
    ending, decisive = why_nothing(training if any(not p.fits for p in training) else probes)
    failure = decisive.failure
    what = failure.message if failure else decisive.outcome.value
    where = f" in phase {failure.phase}" if failure and failure.phase else ""
    hint = failure.hint if failure else ""
    if ending is Ending.NOTHING_FITS:
        split = memory_split(decisive, workload, precision=precision)
        return NothingFits(
            f"nothing fits: batch {decisive.batch_size} is {decisive.outcome.value.replace('_', ' ')}{where}: {what}",
            detail=split.text,
            hint=split.next_action,
        )
    detail = (failure.traceback if failure else "") or decisive.stderr_tail
    if decisive.outcome is Outcome.UNRELIABLE:
        return EnvironmentTrouble(f"batch {decisive.batch_size} cannot be judged: {what}", hint=hint)
    if ending is Ending.ENVIRONMENT:
        return EnvironmentTrouble(
            f"every batch size fails{where}, the smallest as well: {what}", detail=detail, hint=hint
        )
    return WorkloadError(f"the workload fails at batch {decisive.batch_size}{where}: {what}", detail=detail, hint=hint)
