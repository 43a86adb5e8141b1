"""Why a search ended without an answer: nothing fits, the workload fails, or the environment stands in the way."""

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from autotune.model import Cause, Form, Outcome, ProbeResult
from autotune.search.evidence import Finding, read
from autotune.search.trouble import likely_at_every_size

_MEMORY = frozenset({Outcome.OUT_OF_MEMORY, Outcome.HOST_OUT_OF_MEMORY})
_MINIMUM_SIZES = 2
"""As many rejected sizes below an out-of-memory still look like a minimum batch (1 and 2), not like a broken file."""


class Ending(StrEnum):
    """How a search without an answer ended; spelt like the ``kind`` of the matching error."""

    NOTHING_FITS = "nothing_fits"
    WORKLOAD = "workload"
    ENVIRONMENT = "environment"


class NoAnswer(NamedTuple):
    """The ending and the probe to show for it."""

    kind: Ending
    probe: ProbeResult


def why_nothing(history: Sequence[ProbeResult]) -> NoAnswer:
    """Name the ending of a search that stopped with no answer, and the failure that decided it.

    A time-out or a leak at the smallest size counts as the workload's: more memory would not have helped for long,
    and a split of the memory would mislead.

    Raises:
        ValueError: no probe of the history failed.
    """
    failed = [f for f in read(history).findings.values() if not f.probe.fits]
    if not failed:
        raise ValueError(f"none of {len(history)} probes failed")
    for finding in failed:
        if finding.cause in (Cause.ENVIRONMENT, Cause.OTHERS):
            return NoAnswer(Ending.ENVIRONMENT, finding.probe)
    for finding in failed:
        if finding.cause is Cause.USER_BUG:
            return NoAnswer(Ending.WORKLOAD, finding.probe)
    if any(f.ever_fit for f in failed):
        # The short form ran, so what failed in the long form is the news.
        failed = [f for f in failed if f.probe.form is Form.LONG] or failed
    return _judge(failed)


def _judge(failed: list[Finding]) -> NoAnswer:
    smallest = failed[0]
    if smallest.confirm:
        # Ambiguous where it failed first, but memory is proven elsewhere.
        proven = next((f for f in failed if f.probe.outcome in _MEMORY), None)
        return NoAnswer(Ending.NOTHING_FITS, proven.probe) if proven else NoAnswer(Ending.ENVIRONMENT, smallest.probe)
    limits = [f for f in failed if f.is_ceiling and not likely_at_every_size(f)]
    if limits:
        rejected = [f for f in failed if f.size < limits[0].size]
        if len(rejected) <= _MINIMUM_SIZES and all(f.rejects_size for f in rejected):
            return NoAnswer(Ending.NOTHING_FITS, limits[0].probe)
    return NoAnswer(Ending.WORKLOAD, _typical([f for f in failed if f not in limits] or failed).probe)


def _typical(failed: list[Finding]) -> Finding:
    """The smallest failure of the most common kind: batch 1 may fail in a way of its own (BatchNorm)."""
    kinds = {f.size: (f.cause, f.probe.failure.error_type if f.probe.failure else "") for f in failed}
    common = Counter(kinds.values()).most_common(1)[0][0]  # ties: the one met first, at the smallest size
    return next(f for f in failed if kinds[f.size] == common)
