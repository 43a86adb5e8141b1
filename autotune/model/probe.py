"""One probe: the question, what it saw, the result."""

from dataclasses import dataclass, field
from datetime import datetime
from statistics import median, quantiles

from autotune.model.settings import Settings
from autotune.model.trace import Trace
from autotune.model.words import Cause, Form, Outcome, Phase, Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One probe to run."""

    batch_size: int
    form: Form
    reason: Reason
    settings: Settings = field(default_factory=Settings)
    trace_unit: int | None = None
    """Record the allocator's history: train passes at growing multiples of this size in one process, up to a share of
    the budget; ``batch_size`` is then the first of them. None = an ordinary probe."""
    trace_largest: int = 0
    """No recorded size is above this."""
    reference: Settings | None = None
    """For ``Form.COMPARE``: what ``settings`` are compared with."""
    evaluate_at: int | None = None
    """Batch size of the workload's evaluation; None = that of training, 0 = no evaluation."""
    length_bucket: int | None = None
    """As in ``Plan``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseMemory:
    """Peak memory of one phase over all steps."""

    phase: Phase
    peak_allocated_bytes: int
    """CUDA: allocator bytes handed out. CPU: anonymous resident memory of the process."""
    peak_reserved_bytes: int | None = None
    """CUDA: bytes the allocator held from the driver. CPU: None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Composition:
    """What the long-lived memory consists of; None = the probe ended before it could be measured."""

    parameters_bytes: int | None = None
    buffers_bytes: int | None = None
    gradients_bytes: int | None = None
    optimizer_bytes: int | None = None
    batch_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Candidate against reference on the same seeded steps, from the same weights; dropout off."""

    lost: tuple[str, ...] = ()
    """Parameters that get a gradient only under the reference."""
    gained: tuple[str, ...] = ()
    """Parameters that get a gradient only under the candidate."""
    cosine: float | None = None
    """Between the two gradients of the first step, over the parameters that rounding of the weights alone does not turn as
    far; None where there are none, or one gradient is zero or not finite."""
    norm_ratio: float | None = None
    """Norm of the candidate's gradient by that of the reference; None where rounding alone changes it as much."""
    loss_difference: float | None = None
    """|candidate - reference| / |reference| of the first loss; None where rounding alone changes it as much."""
    buffers: tuple[str, ...] = ()
    """Buffers that differ after the first step by more than the precision explains."""
    losses: tuple[float | None, ...] = ()
    """Of the candidate; None = not finite."""
    reference_losses: tuple[float | None, ...] = ()
    skipped: int = 0
    """Steps the candidate's gradient scaler refused before it settled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What a probe saw, complete or up to its failure."""

    steps_asked: int = 0
    steps_executed: int = 0
    """Optimizer steps that really changed the parameters."""
    steps_skipped: int = 0
    """Optimizer steps the gradient scaler refused."""
    observed_batch: int | None = None
    """Samples really in the batch; None where the size asked for is no number of samples, or nobody can tell."""
    worst_batch: str = ""
    """The largest batch that was trained on, its types and shapes in words; empty where none was."""
    candidates: int = 1
    """Different batches that were candidates for the worst one; steps went from one to the next."""
    losses: tuple[float | None, ...] = ()
    """One entry an executed step; None = not finite."""
    step_seconds: tuple[float, ...] = ()
    """One entry a step, warm-up steps left out."""
    phases: tuple[PhaseMemory, ...] = ()
    peak_allocated_bytes: int | None = None
    peak_reserved_bytes: int | None = None
    non_pytorch_bytes: int | None = None
    """Device memory of this process outside the allocator: context, libraries. None: cannot be told (CPU)."""
    peak_device_bytes: int | None = None
    """Device-wide peak of this job, the figure the budget judges: reserved + non-PyTorch. CPU: = allocated."""
    others_bytes: int | None = None
    """Held by other processes just before this probe touched the device."""
    allocator_cap_bytes: int | None = None
    """The cap the probe ran under: budget minus non-PyTorch memory (CUDA), data-segment limit (CPU)."""
    retries_per_step: tuple[int, ...] = ()
    """Allocator retries (failed malloc, cache dropped) in each step."""
    allocated_after_step: tuple[int, ...] = ()
    """Bytes still held at the end of each step."""
    composition: Composition = field(default_factory=Composition)
    evaluated: bool = False
    """The evaluation ran to its end."""
    evaluated_batch: int | None = None
    """Leading dimension really seen in the evaluation's batch; None where there was none, or it could not be told."""
    evaluated_after: int | None = None
    """Training steps before the evaluation, skipped ones included; None where there was none."""
    build_seconds: float | None = None
    """Making the model and optimizer and placing them."""
    loop_seconds: float | None = None
    """Wall time of all steps, evaluation and checkpoint, batches included."""
    worker_seconds: float | None = None
    """From the start of the probe process to its answer."""
    first_step_seconds: float | None = None
    """Of the first step, in which compiling and choosing of kernels happen."""
    recompiles: int | None = None
    """Graphs that ``torch.compile`` made after the first step; None where nothing is compiled."""
    graph_breaks: int | None = None
    """Places where ``torch.compile`` could not go on; None where nothing is compiled."""
    comparison: Comparison | None = None
    """Of ``Form.COMPARE``."""
    graphs_kept: int | None = None
    """Losses of earlier steps that were still alive at the end, each with its autograd graph; None = not looked for."""
    workers_bytes: int | None = None
    """Of ``Form.LOADING``: host memory that the loader's worker processes held for themselves, all of them together."""
    micro_batches: int | None = None
    """Batches that a command of the user's took for an optimizer step; None where the settings say how many."""
    data_set_size: int | None = None
    """Samples in the data set that a command trained on; None where that is known beforehand, or cannot be told."""

    @property
    def median_step_seconds(self) -> float | None:
        """Median step time without warm-up; None where nothing was timed."""
        return median(self.step_seconds) if self.step_seconds else None

    @property
    def spread_step_seconds(self) -> float | None:
        """Distance between the quartiles of the step times without warm-up; None with fewer than four of them."""
        if len(self.step_seconds) < 4:
            return None
        first, _, third = quantiles(self.step_seconds, n=4, method="inclusive")
        return third - first


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a probe did not say ``fits``."""

    cause: Cause
    message: str
    """One or a few lines: what happened, in the words of whoever raised it."""
    phase: Phase | None = None
    step: int | None = None
    """1-based training step."""
    confirm: bool = False
    """Ambiguous: only a smaller size in a fresh process can tell memory from a fault of the installation."""
    error_type: str = ""
    """Qualified exception type, outermost first in the chain that decided."""
    signal: str = ""
    """Name such as ``SIGSEGV``; empty if the process was not killed."""
    exit_code: int | None = None
    requested_bytes: int | None = None
    """The allocation that failed, where its size is known."""
    free_bytes: int | None = None
    """Free memory at the failure, where known."""
    fragmented: bool = False
    """The allocator held enough memory for the request, in pieces too small for it."""
    traceback: str = ""
    """The user's own traceback, frames of autotune left out."""
    hint: str = ""
    rank: int | None = None
    """Of several that trained together, the one it happened in; None where one process trained, or none is named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankResult:
    """One of the ranks that trained together in a probe."""

    rank: int
    outcome: Outcome | None
    """What it says by itself; None = it was stopped, because another one had failed."""
    phase: Phase | None = None
    """Where it was last; None where it told nothing, or ran to its end."""
    step: int | None = None
    steps_executed: int = 0
    peak_allocated_bytes: int | None = None
    peak_reserved_bytes: int | None = None
    non_pytorch_bytes: int | None = None
    """Outside the allocator: context, libraries, the buffers of NCCL."""
    peak_device_bytes: int | None = None
    """These four as in ``Measurement``, of this rank's device; None where it was stopped before it could tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """One probe, answered."""

    batch_size: int
    form: Form
    reason: Reason
    outcome: Outcome
    failure: Failure | None
    """None exactly when the outcome is ``fits``."""
    measurement: Measurement
    budget_bytes: int
    launcher: str
    """``fork`` (from the zygote) or ``spawn`` (a fresh interpreter)."""
    started_at: datetime
    seconds: float
    """Wall time from the request to the reaped process."""
    settings: Settings = field(default_factory=Settings)
    """What the probe ran with."""
    stdout_tail: str = ""
    stderr_tail: str = ""
    trace: Trace | None = None
    """What the allocator did, where the question asked for it and the device records it."""
    evaluate_at: int | None = None
    """As in ``Question``."""
    ranks: tuple[RankResult, ...] = ()
    """Each rank's own figures, where several trained together. The outcome is then that of the one that failed first, and
    the measurement that of the one with the largest peak."""

    @property
    def fits(self) -> bool:
        """True for a probe that ran to its end and was safe."""
        return self.outcome is Outcome.FITS

    @property
    def evaluated_at(self) -> int | None:
        """Batch size at which the evaluation ran to its end; None where it did not, or there is none."""
        if not self.measurement.evaluated:
            return None
        return self.batch_size if self.evaluate_at is None else self.evaluate_at

    @property
    def samples_per_second(self) -> float | None:
        """Throughput of a whole optimizer step (all its micro-batches, of one rank); None where nothing was timed."""
        step = self.measurement.median_step_seconds
        micro_batches = self.measurement.micro_batches or self.settings.accumulate
        return self.batch_size * micro_batches / step if step else None

    @property
    def replicas(self) -> int:
        """Ranks that trained on batches of their own; 1 where one process trained."""
        return self.settings.parallel.replicas(len(self.ranks)) if self.ranks else 1
