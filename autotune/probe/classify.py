"""Why a probe did not complete: evidence in, outcome and failure out. Pure: no torch, no processes, no clock.

Order of decision: what the worker raised, then how its process ended. Among exceptions: a lost device context and
failures that are never memory, the exception's type, size limits, memory texts, ambiguous texts; whatever is left is
the user's own error. Nothing unknown is ever read as "too big".
"""

import signal
from dataclasses import replace

from autotune.model import Cause, Failure, Outcome, Phase
from autotune.probe import figures
from autotune.probe.carried import carried_signal, quoted, terminated, unwrap
from autotune.probe.evidence import Evidence, Raised, class_names, short_name
from autotune.probe.recognise import MEMORY_OR_POISON, recognise
from autotune.probe.rulings import (
    COMPILER_RULING,
    CPU_MODEL_HINT,
    DEVICE_RULING,
    EVALUATION_HINT,
    HOST_HINT,
    MASKED_RULING,
    RULINGS,
    STATUS_RULING,
    Ruling,
)
from autotune.probe.signatures import BUGS, CARRIERS, LOST_CONTACT, NATIVE, Kind, Signature
from autotune.units import format_bytes

__all__ = ["Evidence", "Raised", "classify"]

MESSAGE_LINES = 6
MESSAGE_CHARS = 300


def classify(evidence: Evidence) -> tuple[Outcome, Failure]:
    """Decide what a probe that did not complete says; never ``fits``, never raises.

    Soft failures (thrashing, growth, non-finite loss, missing steps) are none of its business.
    """
    chain = unwrap(evidence.raised)
    # A deadline makes processes raise all sorts of things (a handler of SIGTERM, a data loader that lost its workers);
    # only memory and a lost context, which come from before, say more than the deadline itself.
    if chain and not (evidence.timed_out and not _memory_or_poison(chain)):
        return _judge_exceptions(chain, evidence)
    return _judge_process(evidence)


# --- exceptions -------------------------------------------------------------------------------------------------------

_SIZED = frozenset({Kind.DEVICE, Kind.RUNTIME_CALL, Kind.HOST})
"""Kinds whose text may name the allocation that failed."""


def _judge_exceptions(chain: tuple[Raised, ...], evidence: Evidence) -> tuple[Outcome, Failure]:
    found = [(raised, signature) for raised in chain if (signature := recognise(raised)) is not None]
    if not found:
        return _judge_unknown(chain, evidence)
    # Exhausted memory and a lost context explain what else was raised, wherever in the chain they stand, and the
    # failure of a kernel's resources explains least. Among equals the innermost came first in time.
    raised, signature = min(reversed(found), key=lambda pair: _weight(pair[1].kind))
    return _rule(raised, signature, evidence)


def _memory_or_poison(chain: tuple[Raised, ...]) -> bool:
    """Tell whether an exhausted memory or a lost context is among these, the loss of loader workers left out."""
    kinds = {signature.kind for raised in chain if (signature := recognise(raised)) is not None}
    return bool(kinds & (MEMORY_OR_POISON - {Kind.LOADER_KILLED}))


def _weight(kind: Kind) -> int:
    if kind in MEMORY_OR_POISON:
        return 0
    return 2 if kind is Kind.KERNEL_RESOURCES else 1


def _rule(raised: Raised, signature: Signature, evidence: Evidence) -> tuple[Outcome, Failure]:
    kind = signature.kind
    requested = figures.requested_bytes(raised.text)
    ruling = _ruling(kind, evidence, raised.text, requested)
    # A host's memory may be far larger than that of a small device.
    capacity = None if kind is Kind.HOST and evidence.device != "cpu" else evidence.capacity_bytes
    if kind in _SIZED and figures.is_absurd(requested, capacity):
        ruling = Ruling(
            outcome=Outcome.WORKLOAD_ERROR,
            cause=Cause.USER_CODE,
            hint=f"no machine has the {format_bytes(requested)} asked for: look for a wrong shape or an overflow",
        )
    # The model is built the same for every batch size. Memory is another matter, and so is a poisoned device.
    if _building(evidence) and ruling.outcome in (Outcome.SIZE_LIMIT, Outcome.WORKLOAD_ERROR):
        ruling = replace(ruling, outcome=Outcome.WORKLOAD_ERROR, cause=Cause.USER_BUG)
    elif ruling.outcome is not Outcome.WORKLOAD_ERROR:
        ruling = replace(ruling, confirm=ruling.confirm or signature.confirm)
    ruling = replace(ruling, hint=signature.hint or ruling.hint)
    if _moves_by_itself(kind, evidence) and not signature.hint:
        ruling = replace(ruling, hint=CPU_MODEL_HINT)
    message = _message(raised)
    if kind is Kind.SHARED and evidence.shared_memory_bytes is not None:
        message += f"\nthe shared-memory mount /dev/shm has {format_bytes(evidence.shared_memory_bytes)} in all"
    return _failure(ruling, evidence, message, raised=raised, requested_bytes=requested)


def _ruling(kind: Kind, evidence: Evidence, text: str, requested: int | None) -> Ruling:
    if kind is Kind.DEVICE:
        return replace(DEVICE_RULING, hint=_memory_hint(evidence, text, requested))
    if kind is Kind.HOST:
        return _host_ruling(evidence)
    if kind is Kind.LOADER_KILLED:
        return _host_ruling(evidence, confirm=not evidence.host_oom_kills)
    if kind is Kind.KERNEL_RESOURCES and "_inductor" in evidence.traceback:
        return COMPILER_RULING  # a kernel that the compiler wrote, not the user
    if kind is Kind.RUNTIME_CALL:
        # Pinning host memory fails in the words of the device.
        pinning = evidence.phase is Phase.DATA and _little(evidence.free_bytes, evidence) is False
        return _host_ruling(evidence) if pinning else _ruling(Kind.DEVICE, evidence, text, requested)
    if kind in (Kind.ALLOC_FAILED, Kind.ALLOC_STATUS):
        little = None if evidence.device == "cpu" else _little(_room(evidence), evidence)
        if little or (little is None and kind is Kind.ALLOC_FAILED):
            confirm = little is None or kind is Kind.ALLOC_STATUS
            return replace(_ruling(Kind.DEVICE, evidence, text, requested), confirm=confirm)
        return STATUS_RULING
    if kind is Kind.HOST_MASKED:
        if evidence.device == "cpu" and _little(_room(evidence), evidence):
            return _host_ruling(evidence, confirm=True)
        return MASKED_RULING
    return RULINGS[kind]


def _host_ruling(evidence: Evidence, *, confirm: bool = False) -> Ruling:
    # On the CPU the host's memory is the device's.
    outcome = Outcome.OUT_OF_MEMORY if evidence.device == "cpu" else Outcome.HOST_OUT_OF_MEMORY
    hint = EVALUATION_HINT if evidence.phase is Phase.EVALUATE else HOST_HINT
    return Ruling(outcome=outcome, cause=Cause.HOST_MEMORY, confirm=confirm, hint=hint)


def _judge_unknown(chain: tuple[Raised, ...], evidence: Evidence) -> tuple[Outcome, Failure]:
    members = tuple(raised for raised in chain if "BaseExceptionGroup" not in class_names(raised)) or chain
    raised = members[0]
    names = class_names(raised)
    if evidence.host_oom_kills and names & LOST_CONTACT:
        return _failure(_host_ruling(evidence, confirm=True), evidence, _message(raised), raised=raised)
    if names & CARRIERS:
        number = carried_signal(raised.text)
        return _judge_death(evidence, number, _message(raised), raised)
    if "KeyboardInterrupt" in names:
        return _judge_death(evidence, signal.SIGINT, "interrupted from outside", raised)
    # A handler with a bug of its own may hide an error that depends on the size: all of them must be bugs.
    if _building(evidence) or all(class_names(member) & BUGS for member in members):
        ruling = Ruling(
            outcome=Outcome.WORKLOAD_ERROR,
            cause=Cause.USER_BUG,
            hint="fix this error in your own code: it does not depend on the batch size",
        )
    else:
        ruling = Ruling(outcome=Outcome.WORKLOAD_ERROR, cause=Cause.USER_CODE, hint=_user_hint(names))
    return _failure(ruling, evidence, _message(raised), raised=raised)


def _user_hint(names: frozenset[str]) -> str:
    if "IndexError" in names:
        return "an index or label is outside its range: look at the rows of this batch"
    if "SystemExit" in names:
        return "remove the call that ends the interpreter from the training step"
    return "if only some batch sizes are legal, name their step with --multiple-of; otherwise fix this error"


def _room(evidence: Evidence) -> int | None:
    """Memory that was still to be had: free, or left under the cap, whichever is smaller."""
    left = None
    if evidence.cap_bytes is not None and evidence.allocated_bytes is not None:
        left = evidence.cap_bytes - evidence.allocated_bytes
    if evidence.device == "cpu" and evidence.free_bytes is not None:
        return evidence.free_bytes  # counted as the limit counts; what is allocated is only the resident part
    return min((room for room in (evidence.free_bytes, left) if room is not None), default=None)


def _little(room_bytes: int | None, evidence: Evidence) -> bool | None:
    return figures.is_little(room_bytes, evidence.capacity_bytes)


def _memory_hint(evidence: Evidence, text: str, requested: int | None) -> str:
    pools = figures.private_pool_bytes(text)
    if _fragmented(evidence, text, requested):
        lost = f"memory is fragmented ({format_bytes(figures.unallocated_bytes(text) or 0)} reserved but unallocated): "
        if evidence.expandable_segments:
            return lost + "use fewer distinct shapes, or a smaller batch"
        return lost + "--allocator auto tries expandable segments as well and keeps them where more fits"
    if pools is not None and pools >= _telling(evidence, requested):
        return f"CUDA graphs hold {format_bytes(pools)} in private pools: record fewer shapes, or use a smaller batch"
    if _building(evidence):
        return "the model alone does not fit, whatever the batch: use a smaller model or a larger device"
    if evidence.phase is Phase.EVALUATE:
        return EVALUATION_HINT
    return "use a smaller batch"


def _fragmented(evidence: Evidence, text: str, requested: int | None) -> bool:
    unallocated = figures.unallocated_bytes(text)
    return unallocated is not None and unallocated >= _telling(evidence, requested)


def _telling(evidence: Evidence, requested: int | None) -> int:
    """Anything smaller is what rounding and the pool of small blocks leave behind in every process."""
    return max(requested or 0, int(figures.little_bytes(evidence.capacity_bytes)))


def _building(evidence: Evidence) -> bool:
    return evidence.phase in (Phase.LOAD, Phase.BUILD) and not evidence.of_command


def _moves_by_itself(kind: Kind, evidence: Evidence) -> bool:
    """Tell whether the user's own code reached for a device: autotune makes the model on the CPU here."""
    return kind is Kind.ENVIRONMENT and evidence.device == "cpu" and _building(evidence)


# --- processes --------------------------------------------------------------------------------------------------------

_SHELL_SIGNALS = frozenset(
    {
        signal.SIGHUP,
        signal.SIGINT,
        signal.SIGQUIT,
        signal.SIGILL,
        signal.SIGTRAP,
        signal.SIGABRT,
        signal.SIGBUS,
        signal.SIGFPE,
        signal.SIGKILL,
        signal.SIGSEGV,
        signal.SIGPIPE,
        signal.SIGTERM,
        signal.SIGXCPU,
    }
)
"""Signals that a shell or container reports as exit code 128 + n."""
_FROM_OUTSIDE = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
"""Sent by somebody; a process does not come by them through its own fault."""


def _judge_process(evidence: Evidence) -> tuple[Outcome, Failure]:
    number = _signal_number(evidence)
    if evidence.timed_out:
        hint = "raise --timeout if such a step may take that long; otherwise look for a deadlock in this phase"
        if evidence.host_oom_kills:
            hint = "the kernel killed a process for lack of host memory meanwhile: use fewer loader workers"
        ruling = Ruling(outcome=Outcome.TIMED_OUT, cause=Cause.TIMEOUT, hint=hint)
        return _failure(ruling, evidence, f"no answer within the time limit{_where(evidence)}", signal_number=number)
    # A process that ended of its own accord and content printed whatever it liked.
    died = number is not None or evidence.exit_code != 0
    if died and number not in _FROM_OUTSIDE and (native := _native(evidence)) is not None:
        return native
    return _judge_death(evidence, number, "")


def _judge_death(
    evidence: Evidence, number: int | None, message: str, raised: Raised | None = None
) -> tuple[Outcome, Failure]:
    """Judge a process (or one it had started) by how it ended: by a signal, or (None) of its own accord."""
    if number is None:
        message = message or f"the probe ended without an answer (exit code {evidence.exit_code}){_where(evidence)}"
        if evidence.host_oom_kills and evidence.exit_code != 0:
            return _failure(_host_ruling(evidence, confirm=True), evidence, message, raised=raised)
        ruling = Ruling(
            outcome=Outcome.CRASHED,
            cause=Cause.NO_ANSWER,
            hint="look at the error output of the probe, and for calls that end the interpreter",
        )
        return _failure(ruling, evidence, message, raised=raised)
    message = message or f"the probe was killed by {_signal_name(number)}{_where(evidence)}"
    if number == signal.SIGKILL and evidence.host_oom_kills:
        message += "; the kernel counted an out-of-memory kill"
        return _failure(_host_ruling(evidence), evidence, message, raised=raised, signal_number=number)
    hint = "a native library crashed: update it, or run the size with python -X faulthandler to see where"
    if number in _FROM_OUTSIDE:
        hint = "nothing says who sent the signal or why: look at the kernel log, the batch system and container limits"
    elif number == signal.SIGBUS:
        hint = "check that the shared-memory mount /dev/shm and the disk of memory-mapped files are not full"
    ruling = Ruling(outcome=Outcome.CRASHED, cause=Cause.SIGNAL, confirm=number in _FROM_OUTSIDE, hint=hint)
    if raised is None and (last := terminated(evidence.stderr_tail)) is not None:
        message += f": {_message(last)}"
    return _failure(ruling, evidence, message, raised=raised, signal_number=number)


def _native(evidence: Evidence) -> tuple[Outcome, Failure] | None:
    """Find out from the error output why a process died without telling; None where nothing there explains it."""
    tail = evidence.stderr_tail
    # What the C++ runtime aborted for is as good as an exception. A printed traceback or a log line is not: confirm.
    last = terminated(tail)
    if last is not None and (signature := recognise(last)) is not None:
        return _rule(last, signature, evidence)
    for raised in quoted(tail):
        if (signature := recognise(raised)) is not None:
            return _rule(raised, replace(signature, confirm=True), evidence)
    lowered = tail.lower()
    for signature in NATIVE:
        if all(text in lowered for text in signature.texts):
            line = next((line for line in reversed(tail.splitlines()) if signature.texts[-1] in line.lower()), tail)
            return _rule(Raised(type="", bases=(), text=line), signature, evidence)
    return None


def _signal_number(evidence: Evidence) -> int | None:
    if evidence.signal:
        return evidence.signal
    code = evidence.exit_code or 0
    if code < 0:
        return -code
    return code - 128 if code - 128 in _SHELL_SIGNALS else None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _where(evidence: Evidence) -> str:
    if evidence.phase is None:
        return ""
    return f", last seen in {evidence.phase.value}" + (f" of step {evidence.step}" if evidence.step else "")


# --- results ----------------------------------------------------------------------------------------------------------


def _failure(
    ruling: Ruling,
    evidence: Evidence,
    message: str,
    *,
    raised: Raised | None = None,
    requested_bytes: int | None = None,
    signal_number: int | None = None,
) -> tuple[Outcome, Failure]:
    number = signal_number if signal_number is not None else _signal_number(evidence)
    free = evidence.free_bytes
    if free is None and raised is not None:
        free = figures.free_bytes(raised.text)
    return ruling.outcome, Failure(
        cause=ruling.cause,
        message=message,
        phase=evidence.phase,
        step=evidence.step,
        confirm=ruling.confirm,
        error_type=raised.type if raised is not None else "",
        signal=_signal_name(number) if number is not None else "",
        exit_code=evidence.exit_code,
        requested_bytes=requested_bytes,
        free_bytes=free,
        fragmented=ruling.cause is Cause.DEVICE_MEMORY
        and raised is not None
        and _fragmented(evidence, raised.text, requested_bytes),
        traceback=evidence.traceback,
        hint=ruling.hint,
    )


def _message(raised: Raised) -> str:
    lines = [line.strip() for line in raised.text.splitlines() if line.strip()]
    text = "\n".join(lines[:MESSAGE_LINES]) or short_name(raised.type) or "no message"
    return text if len(text) <= MESSAGE_CHARS else text[: MESSAGE_CHARS - 1] + "…"
