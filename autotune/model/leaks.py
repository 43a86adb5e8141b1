"""Memory that grows from step to step: what was seen of it, and what it means."""

from dataclasses import dataclass
from enum import StrEnum


class LeakKind(StrEnum):
    """What is kept of every step."""

    GRAPH = "graph"
    """Losses or outputs with their autograd graph."""
    TENSORS = "tensors"
    """Tensors without a graph: more of them, in lists, dicts and the like, or one that becomes larger."""
    STATE = "state"
    """Buffers or parameters of the module that become larger or more."""
    HOOKS = "hooks"
    """Hooks that are registered again and again."""
    CYCLES = "cycles"
    """Reference cycles that only Python's garbage collector frees."""
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
    bytes_per_step: float | None = None
    """Of those that each step adds; None where they cannot be counted one by one (a graph's are not Python's), or as the child left it."""
    count_per_step: float
    """Objects that each step adds."""
    shape: str = ""
    """Of what is kept, in words."""
    made_at: str = ""
    """``FILE:LINE`` in the user's code that makes it; empty where that was not seen."""
    kept_at: str = ""
    """``FILE:LINE`` in the user's code that puts it where it stays; empty where that was not seen."""
    phase: str = ""
    """Of the step in which it is made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeakEvidence:
    """What a process that trained for some steps saw. One reading a step, at its end, the first of step 1.

    After the warm-up Python's garbage is collected at the end of each step, to tell what is kept from what only waits.
    """

    warm_up: int = 0
    """First steps, which say nothing."""
    held_bytes: tuple[int, ...] = ()
    """Memory in use without garbage: tensors of the device (CUDA), or all of the process (CPU)."""
    host_bytes: tuple[int, ...] = ()
    """Memory in use of the process; empty on the CPU, where it is the same."""
    garbage_bytes: tuple[int, ...] = ()
    """What the collection freed of ``held_bytes``."""
    blocks: tuple[int, ...] = ()
    """Of memory that Python's own allocator has handed out."""
    graphs_kept: int = 0
    """Losses of earlier steps that are alive with their graph at the end."""
    hooks_added: int = 0
    """Between warm-up and end."""
    room_bytes: int | None = None
    """What was left of the limit at the height of the last step; None where there is no limit."""
    reserved_bytes: tuple[int, ...] = ()
    """What the allocator held of the device, tensors or not; empty on the CPU."""
    unreserved_bytes: int | None = None
    """What it could still take of the limit after the last step; None on the CPU, and where there is no limit."""
    gc_every_steps: float | None = None
    """After how many steps Python would collect by itself; None = never: it is switched off."""
    worker_bytes: tuple[int, ...] = ()
    """Of the loader's worker processes, after each round of batches, warm-up left out."""
    batches_per_round: int = 0
    workers: int = 0
    suspects: tuple[Suspect, ...] = ()
    """What grows, found by a closer look after these steps."""
    trouble: str = ""
    """Why there was no closer look, or what ended it."""

    @property
    def steps(self) -> int:
        """Training steps that were read."""
        return len(self.held_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Growth that goes on."""

    bytes_per_step: float
    fit: float
    """Share of the growth that a straight line explains, 0 to 1."""
    from_step: int
    to_step: int
    """Between which it was seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaks:
    """Whether memory grows for ever, and if so what does."""

    steps: int
    """That were looked at."""
    device: Rate | None
    """Of device memory, on the CPU that of the process; None = it does not grow."""
    host: Rate | None
    """Of host memory beside a device; on the CPU None."""
    workers: Rate | None
    """Of the loader's worker processes, all of them together, for each batch they load; None = does not grow, or there are
    none."""
    ends_at_step: int | None = None
    """Step in which the budget would be used up; None where nothing grows on the device."""
    died_at_step: int | None = None
    """Step in which it really was."""
    suspects: tuple[Suspect, ...] = ()
    """What grows, largest first."""
    notes: tuple[str, ...] = ()
    """What is no leak and worth knowing."""

    @property
    def clean(self) -> bool:
        """Nothing grows."""
        return not (self.device or self.host or self.workers or self.suspects or self.died_at_step)
