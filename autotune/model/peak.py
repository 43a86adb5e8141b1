"""What the peak of a training step consists of, measured on real objects, and what its operators cost."""

from dataclasses import dataclass
from enum import StrEnum

from autotune.model.words import Phase


class MemoryKind(StrEnum):
    """What an allocation that is alive at the peak is."""

    WEIGHTS = "weights"
    BUFFERS = "buffers"
    GRADIENTS = "gradients"
    OPTIMIZER = "optimizer_state"
    ACTIVATIONS = "saved_activations"
    """What autograd keeps of the forward pass for the backward pass."""
    BATCH = "batch"
    TEMPORARIES = "temporaries"
    """Results of operators that autograd does not keep, and gradients of what is no parameter."""
    WORKSPACE = "workspace"
    """Made inside of an operator and not handed out: scratch memory of cuBLAS and cuDNN."""
    SLACK = "slack"
    """Of blocks that are larger than what was asked for."""
    PROCESS = "process"
    """CPU only: interpreter, libraries, and whatever else was resident before the step and is no known tensor."""
    UNKNOWN = "not_attributed"
    """What none of the above explains."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KindBytes:
    """All of one kind that is alive at the peak."""

    kind: MemoryKind
    size_bytes: int
    count: int
    """Allocations; each counts once, however many tensors are views of it. 0 where they cannot be counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedBytes:
    """Part of one kind under a name of the user's: a module, or an operator."""

    name: str
    """Qualified name of the module, ``*`` for the number of a repeated block; empty = outside of all modules. Or the
    operator (``aten::addmm``)."""
    size_bytes: int
    count: int
    """Allocations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorCost:
    """One operator over a whole training step, all its calls together, without what it calls in turn."""

    name: str
    calls: int
    seconds: float
    """On the device where there is one, else on the CPU."""
    allocated_bytes: int
    """What it allocated less what it let go, as the profiler counts; 0 where it let go more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """One training step at its peak."""

    batch_size: int
    phase: Phase | None
    """In which the peak is reached; None where nothing was allocated."""
    measured_bytes: int
    """Peak of a step that nobody watched. CUDA: allocated, by the allocator's own count. CPU: resident memory of the
    process, by the kernel's."""
    watched_bytes: int
    """The same of the step that was taken apart; hooks may cost a little."""
    kinds: tuple[KindBytes, ...]
    """Largest first; the sum is ``watched_bytes``. Kinds of which there is nothing are left out."""
    modules: tuple[NamedBytes, ...]
    """Saved activations by the module whose forward pass saved them first, largest first."""
    makers: tuple[NamedBytes, ...]
    """Temporaries and workspace by the operator that made them, largest first."""
    operators_by_time: tuple[OperatorCost, ...] = ()
    operators_by_memory: tuple[OperatorCost, ...] = ()
    non_pytorch_bytes: int | None = None
    """Device memory outside of the allocator, beside the peak; None on the CPU, where it is in ``PROCESS``."""
    notes: tuple[str, ...] = ()
    """What could not be measured here, and why."""

    def bytes_of(self, kind: MemoryKind) -> int:
        """Bytes of one kind; 0 where there is nothing of it."""
        return next((one.size_bytes for one in self.kinds if one.kind is kind), 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompositionEvidence:
    """What the process saw that took a step apart."""

    peak: Peak | None = None
    """None = it ended before."""
