"""What came back from a probe process -> a result. Child messages are untrusted: validated here, never evaluated."""

import json
import math
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import PositiveInt, TypeAdapter, ValidationError

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
    Phase,
    ProbeResult,
    Question,
    Section,
    Trace,
    WorkloadInfo,
)
from autotune.probe import equivalent
from autotune.probe.classify import Evidence, Raised, classify
from autotune.probe.host import shared_memory_bytes
from autotune.probe.judge import judge
from autotune.probe.tenants import departure
from autotune.units import LARGEST

_TAIL_BYTES = 4000
_REPORT_IT = "please report it with this message"
_FORGED = "look for code of yours that writes to descriptors which it has not opened"
OWN_FAULTS = frozenset({Outcome.WORKLOAD_ERROR, Outcome.UNSUPPORTED, Outcome.SIZE_LIMIT, Outcome.TIMED_OUT})
"""Failures that the memory of others has nothing to do with."""
_NO_MEMORY = frozenset({Form.COMPARE, Form.LOADING})
"""Forms that do not look at memory either, ..."""
_COMPARED = frozenset({Outcome.FITS, Outcome.CHANGES_TRAINING, Outcome.UNSTABLE})
"""... where they say one of these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The guardian's report of one process."""

    zygote: bool
    """Whether there is a zygote to fork from now."""
    answer: dict[str, Any] | None
    mark: dict[str, Any] | None
    exit_code: int | None
    signal: int | None
    timed_out: bool
    garbage_bytes: int
    host_oom_kills: int
    seconds: float
    stopped: bool = False
    """Ended because another rank of its probe had failed."""
    ended_at: float | None = None
    """Instant on ``time.monotonic`` at which it had answered, or was seen to have ended without."""
    peers: "tuple[Ended, ...]" = ()
    """The other ranks, where several trained together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mark:
    phase: Phase
    step: int | None
    batch_size: PositiveInt | None = None
    arrived: bool = False
    """Where it waits for other ranks: in the forward pass of a model that all of them train."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Memory:
    allocated_bytes: int | None
    reserved_bytes: int | None
    free_bytes: int | None
    cap_bytes: int | None
    outside_at_cap_bytes: int | None = None
    outside_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    kind: str
    measurement: Measurement | None = None
    raised: tuple[Raised, ...] = ()
    phase: Phase | None = None
    step: int | None = None
    batch_size: PositiveInt | None = None
    """Size of the pass that ran last."""
    traceback: str = ""
    memory: _Memory | None = None
    refused: dict[str, str] | None = None
    described: dict[str, dict[str, Any]] | None = None
    examined: dict[str, Any] | None = None
    """Of ``examine``: fields of the section's noun, not yet validated."""
    fork_safe: bool | None = None
    why: str = ""
    failed_at: float | None = None
    """Instant on ``time.monotonic`` at which it was raised."""
    ending: bool = False
    """Sent by a command of the user's that ends by itself, not by us: its exit code belongs to the answer."""


@cache
def _adapter(kind: type) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def read_ended(line: bytes) -> Ended:
    """Decode the guardian's report.

    Raises:
        EnvironmentTrouble: it is none.
    """
    try:
        # Not validate_json: it refuses what may stand in texts of the user's, and numbers that are none.
        ended: Ended = _adapter(Ended).validate_python(json.loads(line))
    except ValueError as error:  # what pydantic raises is one as well
        raise EnvironmentTrouble(
            f"the probe guardian sent something else than a report: {error}", hint=_REPORT_IT
        ) from error
    return ended


def read_answer(ended: Ended) -> _Answer | None:
    """The worker's own message; None if there is none, or if it is not one of ours."""
    if ended.answer is None:
        return None
    try:
        answer: _Answer = _adapter(_Answer).validate_python(ended.answer)
    except ValidationError:  # the user's code forged or broke it: as good as no answer, and classified as that
        return None
    return answer if _is_possible(asdict(answer)) and _is_timed(answer.measurement) else None


def _is_possible(value: object) -> bool:
    """Whether all whole numbers within are such that something can be counted by them."""
    if isinstance(value, dict):
        return all(map(_is_possible, value.values()))
    if isinstance(value, list | tuple):
        return all(map(_is_possible, value))
    return not isinstance(value, int) or abs(value) <= LARGEST


def _is_timed(measurement: Measurement | None) -> bool:
    """Whether its times can have been measured."""
    if measurement is None:
        return True
    once = (measurement.build_seconds, measurement.loop_seconds, measurement.worker_seconds)
    times = (*measurement.step_seconds, measurement.first_step_seconds, *once)
    return all(time is None or (math.isfinite(time) and 0 <= time < LARGEST) for time in times)


def _read_mark(ended: Ended) -> _Mark | None:
    """Where the worker last said it was; None where it said nothing, or nothing of ours."""
    if ended.mark is None:
        return None
    try:
        told = {name: ended.mark.get(name) for name in ("phase", "step", "batch_size")}
        mark: _Mark = _adapter(_Mark).validate_python({**told, "arrived": ended.mark.get("arrived", False)})
    except ValidationError:  # forged: then the place is unknown
        return None
    return mark if _is_possible(asdict(mark)) else None


def last_place(ended: Ended) -> tuple[Phase | None, int | None, bool]:
    """Phase and step in which a process last said it was, or in which it failed; and whether it had come to where it waits
    for other ranks."""
    answer, mark = read_answer(ended), _read_mark(ended)
    if answer is not None and answer.phase is not None:
        return answer.phase, answer.step, False
    return (mark.phase, mark.step, mark.arrived) if mark else (None, None, False)


def raised_at(ended: Ended) -> float | None:
    """Instant on ``time.monotonic`` at which a process says that something was raised; None where nothing was, or it says
    one that cannot be."""
    answer = read_answer(ended)
    said = answer.failed_at if answer else None
    if said is None or ended.ended_at is None:
        return None
    return said if 0 <= said <= ended.ended_at else ended.ended_at


def others_left(ended: Ended, limit_bytes: int, others_gone_bytes: int) -> Failure | None:
    """The failure of a probe whose limit counted others that then left (``tenants.departure``), by the process's own word."""
    answer = read_answer(ended)
    if answer is None or answer.memory is None:
        return None
    return departure(limit_bytes, answer.memory.outside_at_cap_bytes, answer.memory.outside_bytes, others_gone_bytes)


def read_trace(path: Path) -> Trace | None:
    """Take the file a worker left; None if there is none, or none of ours."""
    try:
        data = path.read_bytes()
        path.unlink()
        return decode(data)
    except (FileNotFoundError, ValueError):
        return None


def evidence(
    ended: Ended,
    answer: _Answer | None,
    *,
    device: str,
    capacity_bytes: int,
    stderr_tail: str,
    allocator: str = "",
    of_command: bool = False,
) -> Evidence:
    """Everything the classifier wants to know of a process that did not complete."""
    mark = _read_mark(ended)
    memory = answer.memory if answer else None
    return Evidence(
        raised=answer.raised if answer else (),
        answered=answer is not None,
        exit_code=ended.exit_code,
        signal=ended.signal,
        timed_out=ended.timed_out,
        phase=answer.phase if answer else (mark.phase if mark else None),
        step=answer.step if answer else (mark.step if mark else None),
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


def refusal(refused: dict[str, str]) -> AutotuneError:
    """The error a worker refused its order with."""
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
        found = _adapter(kind).validate_python(value)
    except ValidationError as error:
        raise EnvironmentTrouble(f"{who} answered in an unknown form: {error}", hint=_FORGED) from error
    except UsageError as error:  # how ``Settings`` refuses values
        raise EnvironmentTrouble(f"{who} answered in an unknown form: {error.message}", hint=_FORGED) from error
    if not _is_possible(asdict(found)):
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
    answer = read_answer(ended)
    refused = refusal(answer.refused) if answer and answer.refused is not None else None
    if refused is not None and not (question.reason.of_candidate and isinstance(refused, WorkloadError)):
        raise refused
    measurement = (answer.measurement if answer else None) or Measurement()
    stderr_tail = tail(stderr)
    batch_size = question.batch_size
    if question.trace_unit is not None:  # it went on from the size asked for
        mark = _read_mark(ended)
        batch_size = (answer and answer.batch_size) or (mark and mark.batch_size) or batch_size
    outcome: Outcome = Outcome.FITS
    failure: Failure | None = None
    if refused is not None:  # the user's own settings were not refused: it is these that the workload does not bear
        outcome = Outcome.UNSUPPORTED
        failure = Failure(
            cause=Cause.NOT_SUPPORTED, message=refused.message, hint=refused.hint, traceback=refused.detail
        )
    elif answer is None or answer.raised:
        facts = evidence(
            ended,
            answer,
            device=machine.device,
            capacity_bytes=budget_bytes,
            stderr_tail=stderr_tail,
            allocator=question.settings.allocator,
            of_command=of_command,
        )
        outcome, failure = classify(facts)
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
        failure = _blame_garbage(failure, ended.garbage_bytes)
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


def _blame_garbage(failure: Failure, garbage_bytes: int) -> Failure:
    return replace(failure, message=f"{failure.message} ({garbage_bytes} bytes of garbage came on the answer pipe)")


def tail(path: Path) -> str:
    """The end of a log file, as text."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            return file.read().decode(errors="replace")
    except FileNotFoundError:  # the process died before it could open it
        return ""
