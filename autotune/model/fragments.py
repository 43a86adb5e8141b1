"""Whether memory is lost in pieces, and which setting of the allocator was seen to help."""

from dataclasses import dataclass
from statistics import median

from autotune.model.words import Outcome

NO_POOL = "the CPU has no caching allocator whose memory could be in pieces; the C library's heap is not looked at"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """How the caching allocator's memory is cut at one moment."""

    allocated_bytes: int
    reserved_bytes: int
    inactive_split_bytes: int
    """Free, in segments of which other parts are in use: not to be given back, and of no use to what is larger."""
    largest_free_bytes: int
    """The largest free block of the pool for requests above 1 MiB."""
    free_blocks: int

    @property
    def unallocated_bytes(self) -> int:
        """Held and not in use."""
        return self.reserved_bytes - self.allocated_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Squeeze:
    """A request that was only served after the allocator had given its cache back (a retry)."""

    requested_bytes: int
    allocated_bytes: int
    """In use just before."""
    reserved_bytes: int
    """Held just before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FragmentEvidence:
    """What a process saw that trained for some steps."""

    steps: int = 0
    """That were taken to their end."""
    retries_per_step: tuple[int, ...] = ()
    step_seconds: tuple[float, ...] = ()
    """The recording included, which slows every step alike."""
    cap_bytes: int | None = None
    """What the allocator may hold."""
    peak_allocated_bytes: int = 0
    """Over all steps; the two peaks need not be at one moment."""
    peak_reserved_bytes: int = 0
    after_forward: Pieces | None = None
    """When the last forward pass of the model ended and its activations were alive; None where none was seen to end."""
    squeezes: tuple[Squeeze, ...] = ()
    """The last few retries of the steps; empty also where nothing was recorded."""
    requested_bytes: int | None = None
    """The request that failed; None where none did, or it was not recorded."""
    at_failure: Pieces | None = None
    """At the last request that was refused: the one that ended the training, or one that PyTorch coped with."""
    note: str = ""
    """What could not be seen here, and why."""

    @property
    def steady_retries(self) -> int:
        """Retries in the second half of the steps: those in the first belong to the warm-up."""
        return sum(self.retries_per_step[len(self.retries_per_step) // 2 :])

    @property
    def steady_seconds(self) -> float | None:
        """Median time of the steps of the second half; None where there are none."""
        later = self.step_seconds[len(self.step_seconds) // 2 :]
        return median(later) if later else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """An allocator configuration that was tried on the same training in a fresh process."""

    allocator: str
    helps: bool
    """It survived where the training died, or retried less often."""
    outcome: Outcome
    """How the rerun ended."""
    steady_retries: int | None = None
    """Of the rerun; None where it did not come to its end."""
    peak_reserved_bytes: int | None = None
    step_seconds: float | None = None
    """Median of the rerun; None where it did not come to its end."""
    why_not: str = ""
    """Why it could not be tried; empty where it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fragmentation:
    """The answer."""

    flagged: bool
    """Memory is lost in pieces so that a request fails, or is only served after the cache was dropped."""
    why: str
    """A sentence without its full stop."""
    outcome: Outcome
    """How the training ended."""
    failed_at_step: int | None
    evidence: FragmentEvidence
    remedies: tuple[Remedy, ...] = ()
    """All that were tried, the best first; empty where nothing is wrong, or nothing is left to try."""

    @property
    def seen_to_die(self) -> bool:
        """Memory ran out, and how it was cut at that moment is known."""
        return self.outcome is not Outcome.FITS and self.evidence.at_failure is not None

    @property
    def best(self) -> Remedy | None:
        """What to do; None where nothing was seen to help."""
        return next((remedy for remedy in self.remedies if remedy.helps), None)
