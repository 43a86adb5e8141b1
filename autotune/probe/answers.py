"""What came back from a probe process (``ended``) -> a result, or the error that it refused with. Validated, never evaluated."""

from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import PositiveInt, ValidationError

from autotune.diagnose.evidence import EVIDENCE
from autotune.errors import AutotuneError, EnvironmentTrouble, UsageError, WorkloadError
from autotune.memory.encoding import decode
from autotune.model import (
    Cause,
    Failure,
    Form,
    Machine,
    Measurement,
    Outcome,
    ProbeResult,
    Question,
    Section,
    Trace,
    WorkloadInfo,
)
from autotune.probe import equivalent
from autotune.probe.classify import Evidence, classify
from autotune.probe.ended import Answer, Ended, adapter, is_possible, tail
from autotune.probe.host import shared_memory_bytes
from autotune.probe.judge import judge
from autotune.probe.tenants import departure

_FORGED = "look for code of yours that writes to descriptors which it has not opened"
OWN_FAULTS = frozenset({Outcome.WORKLOAD_ERROR, Outcome.UNSUPPORTED, Outcome.SIZE_LIMIT, Outcome.TIMED_OUT})
"""Failures that the memory of others has nothing to do with."""
_NO_MEMORY = frozenset({Form.COMPARE, Form.LOADING})
"""Forms that do not look at memory either, ..."""
_COMPARED = frozenset({Outcome.FITS, Outcome.CHANGES_TRAINING, Outcome.UNSTABLE})
"""... where they say one of these."""


def others_left(ended: Ended, limit_bytes: int, others_gone_bytes: int) -> Failure | None:
    """The failure of a probe whose limit counted others that then left (``tenants.departure``), by the process's own word."""
    memory = ended.answer.memory if ended.answer else None
    if memory is None:
        return None
    return departure(limit_bytes, memory.outside_at_cap_bytes, memory.outside_bytes, others_gone_bytes)


def read_trace(path: Path) -> Trace | None:
    """Take the file a worker left; None if there is none, or none of ours."""
    try:
        data = path.read_bytes()
        path.unlink()
        return decode(data)
    except (FileNotFoundError, ValueError):
        return None


def failure_of(
    ended: Ended,
    *,
    device: str,
    capacity_bytes: int,
    stderr_tail: str,
    allocator: str = "",
    of_command: bool = False,
) -> tuple[Outcome, Failure]:
    """Why a process did not complete (``classify``), from all that is known of it."""
    answer, place = ended.answer, ended.answer or ended.mark
    memory = answer.memory if answer else None
    facts = Evidence(
        raised=answer.raised if answer else (),
        exit_code=ended.exit_code,
        signal=ended.signal,
        timed_out=ended.timed_out,
        phase=place.phase if place else None,
        step=place.step if place else None,
        of_command=of_command,
        device=device,
        free_bytes=memory.free_bytes if memory else None,
        capacity_bytes=capacity_bytes,
        allocated_bytes=memory.allocated_bytes if memory else None,
        cap_bytes=memory.cap_bytes if memory else None,
        expandable_segments="expandable_segments:true" in allocator.lower(),
        host_oom_kills=ended.host_oom_kills,
        shared_memory_bytes=shared_memory_bytes(),
        stderr_tail=stderr_tail,
        traceback=answer.traceback if answer else "",
    )
    return classify(facts)


def obeyed(ended: Ended) -> Answer | None:
    """The answer of a worker that did what it was to do, or tried to.

    Raises:
        AutotuneError: it refused its order.
    """
    refused = _refusal(ended)
    if refused is not None:
        raise refused
    return ended.answer


def _refusal(ended: Ended) -> AutotuneError | None:
    """The error a worker refused its order with."""
    refused = ended.answer.refused if ended.answer else None
    if refused is None:
        return None
    kinds: dict[str, type[AutotuneError]] = {
        kind.kind: kind for kind in (UsageError, WorkloadError, EnvironmentTrouble)
    }
    kind = kinds.get(refused.get("kind", ""), WorkloadError)
    return kind(refused.get("message", ""), hint=refused.get("hint", ""), detail=refused.get("detail", ""))


def machine_result(described: dict[str, dict[str, Any]]) -> Machine:
    """Validated machine.

    Raises:
        EnvironmentTrouble: the message has another form.
    """
    machine: Machine = _described(Machine, described.get("machine"), "the process that looks at the machine")
    return machine


def _described(kind: type, value: object, who: str) -> Any:
    """A value that a process described, validated.

    Raises:
        EnvironmentTrouble: it has another form, or numbers that cannot be.
    """
    try:
        found = adapter(kind).validate_python(value)
    except ValidationError as error:
        raise EnvironmentTrouble(f"{who} answered in an unknown form: {error}", hint=_FORGED) from error
    except UsageError as error:  # how ``Settings`` refuses values
        raise EnvironmentTrouble(f"{who} answered in an unknown form: {error.message}", hint=_FORGED) from error
    if not is_possible(asdict(found)):
        raise EnvironmentTrouble(f"{who} answered with numbers that cannot be", hint=_FORGED)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    size: PositiveInt
    extents: list[list[int]]


def known_batch(described: dict[str, dict[str, Any]]) -> tuple[int, list[list[int]]]:
    """What a rehearsed command was told, and the extents of a batch that it trained on.

    Raises:
        EnvironmentTrouble: the message has another form.
    """
    known: _Known = _described(_Known, described.get("known"), "the rehearsed command")
    return known.size, known.extents


def describe_result(described: dict[str, dict[str, Any]]) -> tuple[WorkloadInfo, Machine]:
    """Validated workload and machine.

    Raises:
        EnvironmentTrouble: the message has another form.
    """
    workload: WorkloadInfo = _described(WorkloadInfo, described.get("workload"), "the describing process")
    return workload, machine_result(described)


def section_result(section: Section, examined: dict[str, Any]) -> Any:
    """Validated noun of one section of a diagnosis (``diagnose.evidence``).

    Raises:
        EnvironmentTrouble: the message has another form.
    """
    return _described(EVIDENCE[section], examined, f"the process that looks at {section}")


def probe_result(
    question: Question,
    ended: Ended,
    *,
    machine: Machine,
    budget_bytes: int,
    started_at: datetime,
    launcher: str,
    stdout: Path,
    stderr: Path,
    trace: Trace | None = None,
    disturbed: Failure | None = None,
    others_gone_bytes: int = 0,
    of_command: bool = False,
) -> ProbeResult:
    """Classify and judge one finished process.

    ``disturbed`` says that others made it worthless, as far as is seen from outside, ``others_gone_bytes`` how much less they
    hold than before it; ``of_command`` that it was a command of the user's.

    Raises:
        AutotuneError: the worker refused its order, under settings that the user has.
    """
    answer, refused = ended.answer, _refusal(ended)
    if refused is not None and not (question.reason.of_candidate and isinstance(refused, WorkloadError)):
        raise refused
    measurement = (answer.measurement if answer else None) or Measurement()
    stderr_tail = tail(stderr)
    batch_size = question.batch_size
    if question.trace_unit is not None:  # it went on from the size asked for
        batch_size = (answer and answer.batch_size) or (ended.mark and ended.mark.batch_size) or batch_size
    outcome: Outcome = Outcome.FITS
    failure: Failure | None = None
    if refused is not None:  # the user's own settings were not refused: it is these that the workload does not bear
        outcome = Outcome.UNSUPPORTED
        failure = Failure(
            cause=Cause.NOT_SUPPORTED, message=refused.message, hint=refused.hint, traceback=refused.detail
        )
    elif answer is None or answer.raised:
        outcome, failure = failure_of(
            ended,
            device=machine.device,
            capacity_bytes=budget_bytes,
            stderr_tail=stderr_tail,
            allocator=question.settings.allocator,
            of_command=of_command,
        )
        if question.form is Form.COMPARE:
            outcome, failure = equivalent.of_candidate(outcome, failure, measurement)
    elif question.form is Form.COMPARE:
        judged = equivalent.judge(
            measurement,
            candidate=question.settings,
            reference=question.reference or question.settings,
            device=machine.device,
        )
        outcome, failure = judged or (outcome, failure)
    else:
        if question.form is not Form.LOADING:  # whose data set may have less; else the child has no say in it
            measurement = replace(measurement, steps_asked=question.form.steps)
        judged = judge(
            measurement,
            batch_size=batch_size,
            form=question.form,
            budget_bytes=budget_bytes,
            device=machine.device,
            evaluate_at=question.evaluate_at,
        )
        outcome, failure = judged or (outcome, failure)
    disturbed = disturbed or others_left(ended, budget_bytes, others_gone_bytes)
    own = outcome in OWN_FAULTS or (question.form in _NO_MEMORY and outcome in _COMPARED)
    if disturbed is not None and not own:
        outcome, failure = Outcome.UNRELIABLE, disturbed
        # Theirs and ours cannot be told apart: nobody may reckon with these.
        measurement = replace(measurement, non_pytorch_bytes=None, peak_device_bytes=None)
    if failure is not None and failure.cause is Cause.NO_ANSWER and ended.garbage_bytes:
        garbage = f"{ended.garbage_bytes} bytes of garbage came on the answer pipe"
        failure = replace(failure, message=f"{failure.message} ({garbage})")
    return ProbeResult(
        batch_size=batch_size,
        form=question.form,
        reason=question.reason,
        outcome=outcome,
        failure=failure,
        measurement=measurement,
        budget_bytes=budget_bytes,
        launcher=launcher,
        started_at=started_at,
        seconds=ended.seconds,
        settings=question.settings,
        stdout_tail=tail(stdout),
        stderr_tail=stderr_tail,
        trace=trace,
        evaluate_at=question.evaluate_at,
    )
