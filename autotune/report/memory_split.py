"""Where the memory of a failed probe went: measured where the probe got that far, expected or "not reached" beyond."""

from dataclasses import asdict, dataclass
from enum import StrEnum

from autotune.model import Cause, Outcome, Phase, Precision, ProbeResult, WorkloadInfo
from autotune.report.columns import align
from autotune.report.words import failure_words
from autotune.units import format_bytes


class Part(StrEnum):
    """What device memory is spent on in a training step."""

    WEIGHTS = "weights"
    BUFFERS = "buffers"
    GRADIENTS = "gradients"
    OPTIMIZER = "optimizer state"
    BATCH = "batch"
    ACTIVATIONS = "activations and temporaries"
    PROCESS = "process and libraries"
    """Device context and libraries on a GPU; interpreter and torch on a CPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Memory of one part."""

    part: Part
    size_bytes: int | None
    """None: the probe ended before this part came into being, and nothing says how large it would be."""
    expected: bool = False
    """True: computed from the number of parameters, not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySplit:
    """Where the memory went, what dominates it and what to do about it."""

    batch_size: int
    what_happened: str
    shares: tuple[Share, ...]
    requested_bytes: int | None
    """The allocation that failed; None where its size is not known."""
    phase: Phase | None
    """Where it failed."""
    budget_bytes: int
    dominant: Part | None
    """None when nothing was measured."""
    next_action: str
    """The one thing to try next."""

    @property
    def text(self) -> str:
        """The split as lines of plain text; the next action is left to whoever prints hints."""
        rows = [(share.part.value, _size_words(share)) for share in self.shares]
        if self.requested_bytes is not None:
            place = f" (in {self.phase.value})" if self.phase else ""
            rows.append(("the request that failed", format_bytes(self.requested_bytes) + place))
        rows.append(("budget", format_bytes(self.budget_bytes)))
        lines = [f"memory at batch {self.batch_size}, {self.what_happened}:", *(f"  {line}" for line in align(rows))]
        if self.dominant is not None:
            lines.append(f"largest part: {self.dominant.value}")
        return "\n".join(lines)


_NOT_YET_RUN = frozenset({Phase.LOAD, Phase.BUILD, Phase.DATA})
"""A failure here comes before the first activation."""

_REQUESTED_BY = {
    Phase.BUILD: Part.WEIGHTS,
    Phase.DATA: Part.BATCH,
    Phase.FORWARD: Part.ACTIVATIONS,
    Phase.BACKWARD: Part.ACTIVATIONS,
    Phase.EVALUATE: Part.ACTIVATIONS,
    Phase.OPTIMIZER: Part.OPTIMIZER,
}
"""The part that an allocation failing in a phase most probably belongs to."""

_STATES_PER_PARAMETER = {"adam": 2, "adamw": 2, "nadam": 2, "radam": 2, "adamax": 2}
"""Optimizers whose state per trainable parameter is known without looking: two moments of the parameter's own type."""

_TELLING_SHARE = 0.01
"""Of the budget; a part smaller than this cannot be why a probe ran out, whatever else is not known."""

_ACTIONS = {
    Part.WEIGHTS: "make the model smaller, or keep its weights in bfloat16: model.to(torch.bfloat16) in make_model()",
    Part.BUFFERS: "register fewer or smaller buffers in the model",
    Part.GRADIENTS: "freeze part of the model: requires_grad_(False) on layers that need no training",
    Part.OPTIMIZER: "return an optimizer with less state from make_optimizer(), such as torch.optim.SGD or Adafactor",
    Part.BATCH: "make the samples smaller: shorter sequences or lower resolution in make_batch()",
}


def memory_split(
    probe: ProbeResult, workload: WorkloadInfo, *, precision: Precision = Precision.DEFAULT
) -> MemorySplit:
    """Split the memory of the probe that failed at the smallest size.

    Args:
        probe: the failing probe; what it measured up to its failure counts before anything expected.
        workload: gives the expected sizes of what the probe did not reach.
        precision: what the probe ran with; decides which advice about activations is left to give.
    """
    shares = _shares(probe, workload)
    process_bytes = next(share.size_bytes for share in shares if share.part is Part.PROCESS)
    failure = probe.failure
    phase = failure.phase if failure else None
    requested_bytes = failure.requested_bytes if failure else None
    dominant = _dominant(shares, requested_bytes, phase, probe.budget_bytes)
    return MemorySplit(
        batch_size=probe.batch_size,
        what_happened=failure_words(probe),
        shares=shares,
        requested_bytes=requested_bytes,
        phase=phase,
        budget_bytes=probe.budget_bytes,
        dominant=dominant,
        next_action=_next_action(probe, dominant, precision, process_bytes or 0),
    )


def composition_words(probe: ProbeResult) -> str:
    """What a probe measured of its long-lived memory and the rest, in one line; empty if nothing was measured."""
    words = ", ".join(f"{part.value} {format_bytes(size)}" for part, size in _measured(probe).items() if size)
    return f"at batch {probe.batch_size}: {words}" if words else ""


def _measured(probe: ProbeResult) -> dict[Part, int | None]:
    """Every part, in order."""
    seen = probe.measurement.composition
    return {
        Part.WEIGHTS: seen.parameters_bytes,
        Part.BUFFERS: seen.buffers_bytes,
        Part.GRADIENTS: seen.gradients_bytes,
        Part.OPTIMIZER: seen.optimizer_bytes,
        Part.BATCH: seen.batch_bytes,
        Part.ACTIVATIONS: activations_bytes(probe),
        Part.PROCESS: _resident_bytes(probe) or probe.measurement.non_pytorch_bytes,
    }


def _shares(probe: ProbeResult, workload: WorkloadInfo) -> tuple[Share, ...]:
    states = _STATES_PER_PARAMETER.get(workload.optimizer.partition(" ")[0].rpartition(".")[2].lower())
    # Only on a CPU is the host's memory the budget's; there a process is known to hold this much with nothing built.
    on_cpu = probe.outcome is Outcome.OUT_OF_MEMORY and probe.failure and probe.failure.cause is Cause.HOST_MEMORY
    expected = {
        Part.WEIGHTS: workload.parameters_bytes,
        Part.GRADIENTS: workload.trainable_bytes,
        Part.OPTIMIZER: None if states is None else states * workload.trainable_bytes,
        Part.PROCESS: workload.process_bytes or None if on_cpu else None,
    }
    return tuple(_share(part, size, expected.get(part)) for part, size in _measured(probe).items())


def _share(part: Part, measured_bytes: int | None, expected_bytes: int | None) -> Share:
    if measured_bytes is not None:
        return Share(part=part, size_bytes=measured_bytes)
    return Share(part=part, size_bytes=expected_bytes, expected=expected_bytes is not None)


def _resident_bytes(probe: ProbeResult) -> int | None:
    """CPU only: what the process held beside the model once that was built; all it held if that was not reached.

    The kernel counts interpreter and torch into the peak of a CPU probe; a GPU's allocator knows nothing of them.
    """
    seen = probe.measurement.composition
    for phase in probe.measurement.phases:
        if phase.phase is Phase.BUILD and phase.peak_reserved_bytes is None:
            return max(0, phase.peak_allocated_bytes - (seen.parameters_bytes or 0) - (seen.buffers_bytes or 0))
    return None


def activations_bytes(probe: ProbeResult) -> int | None:
    """Peak minus everything long-lived that was measured: what was left for activations and temporaries.

    A lower bound, since gradients and the last activations need not be alive at the same instant.
    """
    peak_bytes = probe.measurement.peak_allocated_bytes
    failed_in = probe.failure.phase if probe.failure else None
    if peak_bytes is None or failed_in in _NOT_YET_RUN:
        return None
    lived: tuple[int | None, ...] = (*asdict(probe.measurement.composition).values(), _resident_bytes(probe))
    return max(0, peak_bytes - sum(size for size in lived if size is not None))


def _dominant(
    shares: tuple[Share, ...], requested_bytes: int | None, phase: Phase | None, budget_bytes: int
) -> Part | None:
    sizes = {share.part: share.size_bytes or 0 for share in shares}
    asked_for = _REQUESTED_BY.get(phase) if phase else None
    if asked_for is not None and requested_bytes is not None:
        # A failed request is memory the part wanted on top of what it had; the weights' and the optimizer's expected
        # size already includes it.
        share = next(share for share in shares if share.part is asked_for)
        sizes[asked_for] = (
            max(sizes[asked_for], requested_bytes) if share.expected else sizes[asked_for] + requested_bytes
        )
    largest = max(sizes, key=lambda part: sizes[part])
    return largest if sizes[largest] > _TELLING_SHARE * budget_bytes else None


def _next_action(probe: ProbeResult, dominant: Part | None, precision: Precision, process_bytes: int) -> str:
    if probe.outcome is Outcome.HOST_OUT_OF_MEMORY and probe.failure and probe.failure.cause is Cause.SHARED_MEMORY:
        return "enlarge the shared-memory mount (docker run --shm-size), or use no data loader workers"
    if dominant is None:
        return "run again with -v to see the whole failure, or allow more with --memory-limit"
    if dominant is Part.PROCESS:
        budget = format_bytes(probe.budget_bytes)
        if process_bytes >= probe.budget_bytes:  # it was stopped on the way: how much it needs is not known
            return f"allow more memory (--memory-limit): the process and its libraries alone need more than {budget}"
        held = f"{format_bytes(process_bytes)} of {budget}"
        return f"allow more memory (--memory-limit): the process and its libraries hold {held}"
    if dominant is not Part.ACTIVATIONS:
        return _ACTIONS[dominant]
    if precision in {Precision.BF16, Precision.FP16}:
        return "checkpoint activations in the model (torch.utils.checkpoint), or make the samples smaller"
    return "try --precision bf16, which halves most activations; after that, activation checkpointing in the model"


def _size_words(share: Share) -> str:
    if share.size_bytes is None:
        return "not reached"
    return format_bytes(share.size_bytes) + (" (expected)" if share.expected else "")
