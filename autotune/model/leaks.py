"""Memory that grows from step to step: what was seen of it, and what it means."""

from dataclasses import dataclass
from enum import StrEnum


class LeakKind(StrEnum):
    """What is kept of every step."""

    GRAPH = "graph"
    """Losses or outputs with their autograd graph."""
    TENSORS = "tensors"
    """Tensors without a graph, in lists, dicts and the like."""
    STATE = "state"
    """Buffers or parameters of the module that become larger or more."""
    HOOKS = "hooks"
    """Hooks that are registered again and again."""
    CYCLES = "cycles"
    """Reference cycles that only a collection of Python's garbage frees."""
    LOCKED_CYCLES = "locked_cycles"
    """Reference cycles through an autograd graph, which no collection frees."""
    WORKERS = "workers"
    """Memory of the loader's worker processes."""
    HOST = "host"
    """Objects of Python and NumPy, which are no tensors."""
    UNKNOWN = "unknown"
    """Memory that grows though nothing that Python can see does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """One thing that grows."""

    kind: LeakKind
    what: str
    """In words: ``list KEPT of model.py``."""
    count_per_step: float
    """Objects that each step adds."""
    bytes_per_step: float | None = None
    """Of these; None where that cannot be told."""
    shape: str = ""
    """Of what is kept, in words."""
    made_at: str = ""
    """``FILE:LINE`` in the user's code that allocates it; empty where that was not seen."""
    kept_at: str = ""
    """``FILE:LINE`` in the user's code that puts it where it stays; empty where that was not seen."""
    phase: str = ""
    """Of the step in which it is made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeakEvidence:
    """What a process that trained for some steps saw. Readings are taken at the end of each step, the first is step 1."""

    steps: int = 0
    """Training steps that were taken undisturbed."""
    held_bytes: tuple[int, ...] = ()
    """Device memory: tensors (CUDA), or all of the process (CPU)."""
    host_bytes: tuple[int, ...] = ()
    """Host memory of the process."""
    peak_bytes: int | None = None
    """Most that a step needed at its height above what was held at its end."""
    cap_bytes: int | None = None
    """What the process may hold."""
    suspects: tuple[Suspect, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Growth that goes on."""

    bytes_per_step: float
    fit: float
    """Share of the growth that a straight line explains, 0 to 1."""
    from_step: int
    to_step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaks:
    """Whether memory grows for ever, and if so what does."""

    steps: int
    device: Rate | None
    """Of device memory; None = it does not grow."""
    host: Rate | None
    """Of host memory; on the CPU the same."""
    suspects: tuple[Suspect, ...] = ()
    """What grows, largest first."""
    ends_at_step: int | None = None
    """Step in which the budget would be used up; None where nothing grows."""
    died_at_step: int | None = None
    """Step in which it really was while the steps were taken."""
    advice: tuple[str, ...] = ()
    """What to do, one entry a suspect."""

    @property
    def clean(self) -> bool:
        """Nothing grows."""
        return self.device is None and self.host is None and not self.suspects
