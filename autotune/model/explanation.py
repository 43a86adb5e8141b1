"""Where the memory of a batch size goes: foretold from the allocator's history, or as a probe measured it."""

from dataclasses import dataclass
from enum import StrEnum

from autotune.model.probe import PhaseMemory, ProbeResult
from autotune.model.search import SearchRecord
from autotune.model.words import Phase


class Use(StrEnum):
    """What allocated memory is for, told by when it is made and when it is let go."""

    WEIGHTS = "weights"
    """Made while the model is built: parameters, buffers and what else it keeps."""
    GRADIENTS = "gradients"
    """Made in a backward pass and kept beyond it."""
    OPTIMIZER = "optimizer_state"
    """Made in an optimizer step and kept beyond it."""
    ACTIVATIONS = "activations"
    """Made in a forward pass and kept beyond it."""
    BATCH = "batch"
    WORKSPACE = "workspace"
    """Let go in the phase that made it; or made once in training and kept for good, as cuBLAS does."""
    OTHER = "other"
    SLACK = "slack"
    """Of blocks that are larger than what was asked for: the rest is too small to be given to others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedMemory:
    """All of one use that is alive at the peak."""

    use: Use
    size_bytes: int
    """Requests rounded up to whole blocks."""
    bytes_per_sample: int
    """What one more sample adds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationGroup:
    """Allocations alive at the peak that are alike."""

    use: Use
    phase: Phase | None
    """That made them. None for what is made once in training and kept for good: which phase is the first to need it is
    not told by a recording of several sizes."""
    count: int
    each_bytes: int
    """Requested."""
    each_bytes_per_sample: int
    """What one more sample adds to each; 0 = constant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseRange:
    """Batch sizes at which one phase has the highest peak of all."""

    phase: Phase
    first_batch: int
    last_batch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Foretold:
    """The peak of training at one size, from a recording of smaller ones."""

    recorded_up_to: int
    """The largest size recorded."""
    phase: Phase
    """In which most is allocated."""
    step: int
    """1-based training step that is the first to allocate so much; 0 while the model is built."""
    allocated_bytes: int
    """The peak."""
    reserved_bytes: int
    """The most the allocator holds of the device's memory; what is above ``allocated_bytes`` is cache and fragments."""
    bytes_per_sample: int
    """What one more sample adds to the peak, as long as it stays at the same moment."""
    cap_bytes: int
    """The most the allocator may hold."""
    fits: bool
    """Whether the size is expected to be safe. If it would run out of memory, the figures are those without a cap."""
    parts: tuple[UsedMemory, ...]
    """The peak taken apart, largest first; their sum is ``allocated_bytes``. Uses of which there is nothing are left
    out."""
    groups: tuple[AllocationGroup, ...]
    """The largest, by count times bytes, largest first."""
    phases: tuple[PhaseMemory, ...]
    """Peak of each phase, in the order they come; slack is not in them."""
    ranges: tuple[PhaseRange, ...]
    """From the smallest size to the limit, ascending and without gaps between legal sizes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why a search found the limit it found."""

    search: SearchRecord
    batch_size: int
    """The size explained."""
    foretold: Foretold | None
    why_not: str
    """Why nothing is foretold; empty if something is."""
    measured: ProbeResult | None
    """The probe that tells most of this size: one that certified it, else one that fitted, else one that failed. None =
    it never ran."""
    smaller: ProbeResult | None
    """A probe of a smaller size that fitted, to tell growth from. None where ``measured`` is None or there was none."""
