"""Whether memory is lost in pieces, and what was seen to help, as text. Pure."""

from autotune.model import Findings, Fragmentation, Outcome, Remedy
from autotune.units import format_bytes, format_seconds


def fragmentation_lines(findings: Findings) -> list[str]:
    """The answer, then what it rests on, then what to do."""
    found = findings.fragmentation
    assert found is not None
    seen = found.evidence
    if findings.machine.device == "cpu":
        return [f"no fragmentation to look for: {seen.note}"]
    end = "" if found.outcome is Outcome.FITS else f", where the training dies in step {found.failed_at_step}"
    lines = [f"{'memory is fragmented' if found.flagged else 'no fragmentation'}{end}: {found.why}"]
    retries = (
        f"{sum(seen.retries_per_step)} allocator retries in {seen.steps} steps, {seen.steady_retries} of them late"
    )
    lines.append(
        f"  peak allocated {format_bytes(seen.peak_allocated_bytes)}, peak reserved "
        f"{format_bytes(seen.peak_reserved_bytes)}; {retries}"
    )
    if seen.after_forward is not None:
        cut = seen.after_forward
        lines.append(
            f"  after the last forward pass: {format_bytes(cut.unallocated_bytes)} held without use, of which "
            f"{format_bytes(cut.inactive_split_bytes)} inactive split; largest free block "
            f"{format_bytes(cut.largest_free_bytes)}"
        )
    if seen.at_failure is not None and found.outcome is not Outcome.FITS:
        at = seen.at_failure
        asked = "" if seen.requested_bytes is None else f" {format_bytes(seen.requested_bytes)} were asked for;"
        lines.append(
            f"  at the failure:{asked} allocated {format_bytes(at.allocated_bytes)} of {format_bytes(at.reserved_bytes)} "
            f"reserved, largest free block {format_bytes(at.largest_free_bytes)}, "
            f"{format_bytes(at.inactive_split_bytes)} inactive split in {at.free_blocks} free blocks"
        )
    if seen.note:
        lines.append(f"  {seen.note}")
    return [*lines, *(f"  {line}" for line in _remedy_lines(found))]


def _remedy_lines(found: Fragmentation) -> list[str]:
    if not found.flagged:
        return []
    lines = [f"tried {remedy.allocator}: {_effect(remedy, found)}" for remedy in found.remedies]
    best = found.best
    if best is not None:
        return [f"set PYTORCH_CUDA_ALLOC_CONF={best.allocator} (seen to help in a fresh process)", *lines]
    if not lines:
        return ["no setting of the allocator is left to try; use fewer distinct shapes, or a smaller batch"]
    return ["no setting of the allocator helps here; use fewer distinct shapes, or a smaller batch", *lines]


def _effect(remedy: Remedy, found: Fragmentation) -> str:
    if remedy.why_not:
        return f"not possible here: {remedy.why_not}"
    if remedy.outcome is not Outcome.FITS:
        return f"the training ends with {remedy.outcome.value.replace('_', ' ')}"
    before, after = found.evidence.steady_seconds, remedy.step_seconds
    time = ""
    if after is not None:
        time = f", {format_seconds(after)} a step"
        time += f" instead of {format_seconds(before)}" if before is not None and found.outcome is Outcome.FITS else ""
    retries = f"{remedy.steady_retries} late retries"
    if found.outcome is Outcome.FITS:
        return f"{retries} instead of {found.evidence.steady_retries}{time}"
    return f"the training survives, {retries}{time}"
