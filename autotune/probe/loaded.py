"""What the end of a process says that was to load a workload, or to describe it: try again, spawn instead, or give up."""

from pathlib import Path

from autotune.errors import AutotuneError, EnvironmentTrouble, NothingFits, WorkloadError
from autotune.model import Cause, Failure, Outcome
from autotune.probe.answers import failure_of
from autotune.probe.ended import Ended, tail
from autotune.probe.order import Op


def was_killed(ended: Ended, stderr: Path) -> bool:
    """Whether somebody's signal ended it: as with a probe, that says nothing of the workload, and is worth another try."""
    if ended.timed_out or ended.answer is not None or ended.signal is None:
        return False
    _, failure = _failure(ended, stderr)
    return failure.cause is Cause.SIGNAL and failure.confirm


def fork_trouble(op: Op, ended: Ended) -> str:
    """Why forks do not work here, told by the end of one; empty if it does not tell that."""
    if not ended.zygote:
        return "forking one failed"
    refused = ended.answer is not None and ended.answer.refused is not None
    if op is not Op.DESCRIBE or ended.mark is not None or refused:
        return ""  # the user's code began, or an order was understood and refused
    if ended.timed_out:
        return "a forked child of it hangs while computing (a thread pool was used while the file was imported)"
    return "a forked child of it cannot compute or start the device"


def load_error(ended: Ended, stderr: Path, ref: str, timeout_s: float) -> AutotuneError:
    """The user's file (``ref``) could not be loaded, or its model not be made."""
    outcome, failure = _failure(ended, stderr)
    if was_killed(ended, stderr):
        return EnvironmentTrouble(f"{ref} was not loaded: {failure.message}", hint=failure.hint, detail=tail(stderr))
    where = f" while it was in phase {failure.phase}" if failure.phase else ""
    if ended.timed_out:
        return WorkloadError(
            f"{ref} did not finish within --timeout {timeout_s:g} s{where}",
            hint="raise --timeout, or look for a wait or endless loop at import",
            detail=tail(stderr),
        )
    kind = NothingFits if outcome in (Outcome.OUT_OF_MEMORY, Outcome.HOST_OUT_OF_MEMORY) else WorkloadError
    return kind(
        f"{ref} fails{where}: {failure.message}",
        hint=failure.hint or "run the file by itself to see the same error",
        detail=failure.traceback or tail(stderr),
    )


def _failure(ended: Ended, stderr: Path) -> tuple[Outcome, Failure]:
    return failure_of(ended, device="cpu", capacity_bytes=0, stderr_tail=tail(stderr))
