"""What a guard saw of a training, and the batch it proposes if one was too large. Pure."""

from dataclasses import asdict, dataclass

from autotune.runtime.degrade import Failures
from autotune.units import format_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A micro-batch for the next run, with which an optimizer step sees as many samples as before."""

    micro_batch: int
    accumulate: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A training, as far as its guard saw it."""

    steps: int
    out_of_memory: int
    """Passes that ran out of memory."""
    micro_batches_split: int
    """Micro-batches that were trained on in parts."""
    failed_at: int | None
    """Samples in the smallest pass that ran out of memory."""
    ran_at: int | None
    """Samples in the largest part that went through."""
    proposal: Proposal | None
    """None = nothing was split, or samples cannot be counted."""
    peak_used_bytes: int | None
    """The most that a look found in use of the device; None = nothing was looked at."""
    limit_bytes: int | None
    retries: int
    """Of the allocator, between first and last look."""
    growth_bytes_per_step: float | None
    """None = no leak was seen."""
    checkpoints: int

    def __str__(self) -> str:
        parts = [f"{self.steps} steps"]
        if self.peak_used_bytes is not None:
            parts.append(f"at most {format_bytes(self.peak_used_bytes)} of {format_bytes(self.limit_bytes)} in use")
        parts.append(f"{self.out_of_memory} out of memory, {self.micro_batches_split} micro-batches split")
        if self.retries:
            parts.append(f"{self.retries} allocator retries")
        if self.growth_bytes_per_step is not None:
            parts.append(f"memory grew by {format_bytes(round(self.growth_bytes_per_step))} a step")
        if self.checkpoints:
            parts.append(f"{self.checkpoints} emergency checkpoints")
        if self.proposal is not None:
            proposed = self.proposal
            parts.append(f"proposed: micro-batch {proposed.micro_batch}, accumulate {proposed.accumulate}")
        return "; ".join(parts)

    def as_fields(self) -> dict[str, object]:
        """For a line of the log."""
        return asdict(self)


def propose(failures: Failures, accumulate: int) -> Proposal | None:
    """The largest part of the split micro-batch that divides it, went through, and is smaller than what ever failed."""
    whole, ran, failed = failures.split_from, failures.ran_at, failures.failed_at
    if whole is None or ran is None or failed is None:
        return None
    size = next((size for size in range(min(ran, failed - 1), 0, -1) if whole % size == 0), None)
    return None if size is None else Proposal(micro_batch=size, accumulate=accumulate * (whole // size))
