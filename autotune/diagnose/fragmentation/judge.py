"""What was seen of a training becomes whether fragmentation is to blame, and which rerun was better. Pure."""

from collections.abc import Sequence

from autotune.model import Failure, Fragmentation, FragmentEvidence, Outcome, Remedy
from autotune.units import MIB, format_bytes

LARGE_SHARE = 0.05
LARGE_BYTES = 64 * MIB
"""Held without use is *large* from 5 % of what the allocator may hold, and not below 64 MiB: rests of segments, and the pool
of small blocks, leave less than that in every training."""


def judge_fragmentation(evidence: FragmentEvidence, outcome: Outcome, failure: Failure | None) -> Fragmentation:
    """Say whether memory is lost in pieces.

    Only where much is held without use *and* a request that failed, or waited for the cache to be dropped in steady state,
    would have fitted into all that was free.

    Args:
        evidence: what the training showed, up to its end or its failure.
        outcome: how it ended.
        failure: what ended it too early; None where nothing did.
    """
    flagged, why = _verdict(evidence, outcome)
    return Fragmentation(
        flagged=flagged, why=why, outcome=outcome, failed_at_step=failure.step if failure else None, evidence=evidence
    )


def _verdict(evidence: FragmentEvidence, outcome: Outcome) -> tuple[bool, str]:
    at = evidence.at_failure
    if outcome is Outcome.OUT_OF_MEMORY:
        if at is None or evidence.requested_bytes is None:
            return False, "memory ran out, and how it was cut then was not recorded"
        held, asked = at.unallocated_bytes, evidence.requested_bytes
        free = _free(held, at.reserved_bytes, evidence.cap_bytes)
        seen = f"{format_bytes(asked)} were asked for, {format_bytes(held)} were held without use"
        if held < _large(evidence.cap_bytes):
            return False, f"memory ran out because it was used up, not in pieces: {seen}"
        if asked > free:
            return False, f"{seen}, and all of it together was not enough either"
        return True, f"{seen}, in pieces of at most {format_bytes(at.largest_free_bytes)}"
    if not evidence.steady_retries:
        return False, "no request failed, and none waited for the cache to be dropped once the training was warm"
    lost = [
        squeeze
        for squeeze in evidence.squeezes
        if (held := squeeze.reserved_bytes - squeeze.allocated_bytes) >= _large(evidence.cap_bytes)
        and squeeze.requested_bytes <= _free(held, squeeze.reserved_bytes, evidence.cap_bytes)
    ]
    retries = f"{evidence.steady_retries} retries in the last {_half(evidence)} steps"
    if not lost:
        return False, f"{retries}, with little held without use: memory is nearly used up"
    worst = max(lost, key=lambda squeeze: squeeze.reserved_bytes - squeeze.allocated_bytes)
    held = worst.reserved_bytes - worst.allocated_bytes
    return True, (
        f"{retries}: a request for {format_bytes(worst.requested_bytes)} had to wait although {format_bytes(held)} were "
        "held without use"
    )


def _large(cap_bytes: int | None) -> int:
    return max(LARGE_BYTES, int(LARGE_SHARE * (cap_bytes or 0)))


def _free(held: int, reserved: int, cap_bytes: int | None) -> int:
    """All that could have been had: held without use, and not held yet."""
    return held + max(0, (cap_bytes or reserved) - reserved)


def _half(evidence: FragmentEvidence) -> int:
    return len(evidence.retries_per_step) - len(evidence.retries_per_step) // 2


def judge_remedy(allocator: str, before: Fragmentation, after: FragmentEvidence, outcome: Outcome) -> Remedy:
    """Whether a rerun under this configuration went better: it survived where the training died, or retried less often."""
    survived = outcome is Outcome.FITS
    died = before.outcome is not Outcome.FITS
    fewer = after.steady_retries < before.evidence.steady_retries
    return Remedy(
        allocator=allocator,
        helps=survived and (died or fewer),
        outcome=outcome,
        steady_retries=after.steady_retries if survived else None,
        peak_reserved_bytes=after.peak_reserved_bytes or None,
        step_seconds=after.steady_seconds if survived else None,
    )


def ranked(remedies: Sequence[Remedy]) -> tuple[Remedy, ...]:
    """Those that help first: fewest retries, then fastest."""
    return tuple(
        sorted(remedies, key=lambda one: (not one.helps, one.steady_retries or 0, one.step_seconds or float("inf")))
    )
