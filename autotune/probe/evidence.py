"""What is known about a probe that did not complete: the nouns of ``classify``. No torch, no processes."""

from dataclasses import dataclass

from autotune.model import Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """One exception of the chain."""

    type: str
    """Qualified: ``torch.OutOfMemoryError``, ``builtins.RuntimeError``."""
    bases: tuple[str, ...]
    """Qualified names of its classes in method resolution order, itself included, ``object`` left out."""
    text: str
    """``str()`` of it; may be empty."""
    errno: int | None = None
    """For ``OSError``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything known about a probe that did not complete."""

    raised: tuple[Raised, ...] = ()
    """Outermost first; causes, contexts and members of exception groups all flattened in."""
    exit_code: int | None = None
    signal: int | None = None
    """Number of the signal that ended the process."""
    timed_out: bool = False
    phase: Phase | None = None
    """The last phase the worker reported."""
    step: int | None = None
    of_command: bool = False
    """The user's own command was run: whatever it does before its first step may depend on the batch size, too."""
    device: str = "cpu"
    free_bytes: int | None = None
    """Free memory of the device at the failure."""
    capacity_bytes: int | None = None
    """Of the device, or the budget where that is smaller."""
    allocated_bytes: int | None = None
    cap_bytes: int | None = None
    """What the allocator (CPU: the process) was allowed."""
    expandable_segments: bool = False
    """Whether the allocator was set to grow its segments."""
    host_oom_kills: int = 0
    """How far the kernel's count of out-of-memory kills moved during the probe."""
    shared_memory_bytes: int | None = None
    """Size of the mount that data loader workers hand batches over in; None where there is none."""
    stderr_tail: str = ""
    """Consulted only where there is no exception."""
    traceback: str = ""


def class_names(raised: Raised) -> frozenset[str]:
    """Unqualified names of the exception's classes."""
    return frozenset(short_name(name) for name in (raised.type, *raised.bases))


def short_name(qualified: str) -> str:
    """The last part of a Python or C++ name."""
    return qualified.replace("::", ".").rpartition(".")[2]
