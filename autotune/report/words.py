"""Every enum member that a person gets to read, in words, and the numbers of a report as text."""

from autotune.model import Cause, Failure, Form, Outcome, ProbeResult, Reason, SearchResult
from autotune.units import counted, format_bytes

OUTCOMES = {
    Outcome.FITS: "fits",
    Outcome.UNSAFE: "unsafe",
    Outcome.OUT_OF_MEMORY: "out of memory",
    Outcome.SIZE_LIMIT: "size limit",
    Outcome.HOST_OUT_OF_MEMORY: "host out of memory",
    Outcome.UNSTABLE: "unstable",
    Outcome.TIMED_OUT: "timed out",
    Outcome.CRASHED: "crashed",
    Outcome.WORKLOAD_ERROR: "workload error",
    Outcome.UNSUPPORTED: "not supported",
    Outcome.CHANGES_TRAINING: "trains something else",
    Outcome.UNRELIABLE: "unreliable",
}

CAUSES = {
    Cause.DEVICE_MEMORY: "the device's memory was used up",
    Cause.HOST_MEMORY: "the host's memory was used up",
    Cause.SHARED_MEMORY: "the shared-memory mount of the data loader workers is full",
    Cause.MASKED_MEMORY: "an internal assertion that stands for an out-of-memory",
    Cause.LIBRARY_STATUS: "a library returned an error status",
    Cause.SIZE_LIMIT: "a limit of size, not of memory",
    Cause.DATA_SET: "the data set has no more samples",
    Cause.CONTEXT_LOST: "the device context was lost",
    Cause.SIGNAL: "the process was killed by a signal",
    Cause.NO_ANSWER: "the process ended without a result",
    Cause.TIMEOUT: "the time limit of one probe passed",
    Cause.THRASHING: "the allocator kept dropping its cache and retrying",
    Cause.GROWTH: "memory grew from step to step",
    Cause.OVER_BUDGET: "the peak was above the budget",
    Cause.SPILLED: "memory of the device lay in the host's",
    Cause.NON_FINITE: "the loss was not finite",
    Cause.STEPS_SKIPPED: "the gradient scaler skipped every step",
    Cause.NO_STEPS: "fewer training steps ran than were asked for",
    Cause.USER_CODE: "the workload's own code raised",
    Cause.USER_BUG: "the workload's own code is broken",
    Cause.NOT_SUPPORTED: "not supported here",
    Cause.GRADIENTS_LOST: "other parameters get gradients",
    Cause.GRADIENTS_DIFFER: "the gradient differs",
    Cause.LOSS_DIFFERS: "the loss differs",
    Cause.BUFFERS_DIFFER: "buffers such as running statistics differ",
    Cause.ENVIRONMENT: "driver, device or installation trouble",
    Cause.OTHERS: "other processes changed their use of the device",
    Cause.LOST: "the worker that ran it was lost, and it ran again",
}

REASONS = {
    Reason.START: "first size",
    Reason.GROW: "grow",
    Reason.SHRINK: "shrink",
    Reason.BISECT: "bisect",
    Reason.LEGAL_SIZE: "legal size?",
    Reason.NEIGHBOUR: "hole or ceiling?",
    Reason.RETRY: "retry",
    Reason.DATA_SET: "end of data",
    Reason.CERTIFY: "certify",
    Reason.RECOMMEND: "as fast?",
    Reason.CONFIRM: "confirm",
    Reason.TRACE: "trace",
    Reason.PREDICTED: "predicted",
    Reason.REFUTE: "too large?",
    Reason.CORRECT: "corrected",
    Reason.ALLOCATOR: "allocator",
    Reason.BASELINE: "your settings",
    Reason.KNOWN: "known to pay",
    Reason.CHANGE: "one change",
    Reason.SAMPLED: "sampled",
    Reason.LARGER: "room for more",
    Reason.COMPARE: "same training?",
    Reason.LOADING: "loading",
}

FORMS = {
    Form.SHORT: "short",
    Form.LONG: "long",
    Form.TIMED: "timed",
    Form.COMPARE: "compare",
    Form.LOADING: "load",
    Form.EVALUATE: "eval",
}

BOUNDS = {
    "max_batch": "no larger size was allowed",
    "data_set": "the data set has no more samples",
    "not_searched": "larger ones were not tried",
    "eval_batch": "no larger one was asked for",
}
"""``Answer.limited_by`` where a bound ended the search; everything else there is a ``Cause`` or the time budget."""

_SELF_EXPLAINING = frozenset({Cause.DEVICE_MEMORY, Cause.HOST_MEMORY, Cause.SIZE_LIMIT, Cause.TIMEOUT})
"""Causes that add nothing to the words of their outcome."""


def failure_words(probe: ProbeResult) -> str:
    """Outcome, place and cause of a probe that did not fit: ``out of memory in forward, step 2``."""
    words = OUTCOMES[probe.outcome]
    failure = probe.failure
    if failure is None:
        return words
    if failure.phase is not None:
        words += f" in {failure.phase.value}"
    if failure.step is not None and failure.step > 1:
        words += f", step {failure.step}"
    if failure.signal:
        return f"{words} ({failure.signal})"
    if failure.cause is Cause.USER_CODE and failure.error_type:
        return f"{words} ({short_type(failure)})"
    return words if failure.cause in _SELF_EXPLAINING else f"{words} ({CAUSES[failure.cause]})"


def short_type(failure: Failure) -> str:
    """Exception type without its module."""
    return failure.error_type.rpartition(".")[2]


def bound_words(result: SearchResult) -> str:
    """What keeps the answer from being larger: ``28 refuted: out of memory in forward``."""
    refutation = result.refutation
    if refutation is None:
        return limit_words(result.answer.limited_by)
    return f"{refutation.batch_size} refuted: {failure_words(refutation)}"


def worker_words(workers: int) -> str:
    """``no worker``, ``1 worker``, ``4 workers``."""
    return counted(workers, "worker") if workers else "no worker"


def limit_words(limited_by: str) -> str:
    """``Answer.limited_by`` in words."""
    if limited_by in BOUNDS:
        return BOUNDS[limited_by]
    causes = {cause.value: words for cause, words in CAUSES.items()}
    return causes.get(limited_by, limited_by.replace("_", " "))


def format_rate(samples_per_second: float | None) -> str:
    """Throughput to three digits, never in powers of ten: ``0.523``, ``47.3``, ``6,912``; ``-`` for None."""
    if samples_per_second is None:
        return "-"
    if samples_per_second >= 100:
        return f"{samples_per_second:,.0f}"
    return f"{samples_per_second:.3g}"


def format_count(count: int) -> str:
    """Number of parameters: ``312``, ``124.4 M``."""
    for factor, unit in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if count >= factor:
            return f"{count / factor:.4g} {unit}"
    return str(count)


def format_share(used_bytes: int | None, of_bytes: int) -> str:
    """A peak against its budget: ``38.2 GiB of 39.2 GiB (97 %)``; ``-`` for None (not measured)."""
    if used_bytes is None:
        return "-"
    share = f" ({100 * used_bytes / of_bytes:.0f} %)" if of_bytes > 0 else ""
    return f"{format_bytes(used_bytes)} of {format_bytes(of_bytes)}{share}"
