"""The nouns of autotune: frozen values that travel between rooms. No behaviour beyond derived facts, no torch.

Sizes are whole bytes (``_bytes``), times are seconds (``_seconds``/``_s``), instants are aware UTC datetimes.
"""

import hashlib
import json
import re
from dataclasses import asdict, dataclass, field
from datetime import datetime
from enum import StrEnum
from statistics import median, quantiles

from autotune.errors import UsageError


class Outcome(StrEnum):
    """What one probe says about its batch size."""

    FITS = "fits"
    UNSAFE = "unsafe"
    """Ran, but thrashed, leaked or broke the budget."""
    OUT_OF_MEMORY = "out_of_memory"
    SIZE_LIMIT = "size_limit"
    """A hard limit that more memory would not lift: 32-bit indexing, grid dimension, length of the data set."""
    HOST_OUT_OF_MEMORY = "host_out_of_memory"
    UNSTABLE = "unstable"
    """Loss not finite, or no optimizer step was ever taken by the gradient scaler."""
    TIMED_OUT = "timed_out"
    CRASHED = "crashed"
    """The process died, lost its device context, or failed in a way that may or may not be memory."""
    WORKLOAD_ERROR = "workload_error"
    UNSUPPORTED = "unsupported"

    @property
    def is_ceiling(self) -> bool:
        """True if every larger size is expected to fail as well, so that one such probe bounds the search."""
        return self in _CEILINGS


_CEILINGS = frozenset(
    {
        Outcome.UNSAFE,
        Outcome.OUT_OF_MEMORY,
        Outcome.SIZE_LIMIT,
        Outcome.HOST_OUT_OF_MEMORY,
        Outcome.TIMED_OUT,
    }
)


class Cause(StrEnum):
    """What decided an outcome other than ``fits``; one outcome has several possible causes."""

    DEVICE_MEMORY = "device_memory"
    HOST_MEMORY = "host_memory"
    SHARED_MEMORY = "shared_memory"
    """The host's shared-memory mount, used by data loader workers."""
    MASKED_MEMORY = "masked_memory"
    """Reads as an internal assertion or a library status, and is probably an out-of-memory."""
    LIBRARY_STATUS = "library_status"
    """cuBLAS, cuDNN, cuFFT … status that may be memory, a bug or a broken installation."""
    SIZE_LIMIT = "size_limit"
    DATA_SET = "data_set"
    """The batch came out smaller than asked for: the data has no more samples."""
    CONTEXT_LOST = "context_lost"
    """Illegal access, device-side assert: the device context is unusable."""
    SIGNAL = "signal"
    """The process died of a signal with nothing to show that memory was the reason."""
    NO_ANSWER = "no_answer"
    """The process ended without a result, whatever its exit code."""
    TIMEOUT = "timeout"
    THRASHING = "thrashing"
    """Allocator retries went on in steady state."""
    GROWTH = "growth"
    """Memory grew from step to step after warm-up."""
    OVER_BUDGET = "over_budget"
    NON_FINITE = "non_finite"
    STEPS_SKIPPED = "steps_skipped"
    """The gradient scaler skipped every step."""
    NO_STEPS = "no_steps"
    """Fewer real training steps ran than asked for, without an error."""
    USER_CODE = "user_code"
    """An exception of the user's code that may depend on the batch size (assertion, shape, value)."""
    USER_BUG = "user_bug"
    """An exception of the user's code that cannot depend on the batch size (name, import, syntax, type)."""
    NOT_SUPPORTED = "not_supported"
    ENVIRONMENT = "environment"
    """Driver, device or installation trouble."""


class Form(StrEnum):
    """How long a probe is. Only the long form certifies."""

    SHORT = "short"
    LONG = "long"


class Reason(StrEnum):
    """Why the search asked for a probe."""

    START = "start"
    GROW = "grow"
    SHRINK = "shrink"
    BISECT = "bisect"
    LEGAL_SIZE = "legal_size"
    """Finding out which batch sizes the workload accepts at all."""
    NEIGHBOUR = "neighbour"
    """Telling a hole from a ceiling after a failure that may have nothing to do with size."""
    RETRY = "retry"
    DATA_SET = "data_set"
    """The size the data set was seen to end at."""
    CERTIFY = "certify"
    RECOMMEND = "recommend"
    """Certifying a smaller size that is as fast as the largest."""
    CONFIRM = "confirm"
    """Checking that an answer from the ledger still holds."""


class Phase(StrEnum):
    """Where in a probe something happened."""

    LOAD = "load"
    BUILD = "build"
    DATA = "data"
    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"
    EVALUATE = "evaluate"
    CHECKPOINT = "checkpoint"
    """The ``state_dict`` copy in the middle of the long form."""
    EXIT = "exit"


ALLOCATOR_VARIABLES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
"""Both names are set: releases differ in which one they read (2.9 ignored the new one for CUDA, PyTorch #183387)."""
_ALLOCATOR_OPTION = r"[a-z_0-9]+:(?:[A-Za-z0-9_.]+|\[[A-Za-z0-9_.:,]+\])"
_ALLOCATOR = re.compile(rf"{_ALLOCATOR_OPTION}(?:,{_ALLOCATOR_OPTION})*")


class Precision(StrEnum):
    """Number formats of a training step. Parameters stay as the user made them."""

    DEFAULT = "default"
    """What the user's script gets from PyTorch without asking."""
    FP32 = "fp32"
    """Strict: no tf32 anywhere."""
    TF32 = "tf32"
    """tf32 allowed in matrix products and convolutions."""
    BF16 = "bf16"
    """bf16 autocast."""
    FP16 = "fp16"
    """fp16 autocast with a gradient scaler."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How the workload is trained, as far as autotune applies it."""

    precision: Precision = Precision.DEFAULT
    allocator: str = ""
    """Allocator configuration in PyTorch's own syntax (``expandable_segments:True``); empty = the default."""
    accumulate: int = 1
    """Micro-batches per optimizer step."""

    def __post_init__(self) -> None:
        if self.accumulate < 1:
            raise UsageError(f"accumulate is {self.accumulate}; it counts micro-batches", hint="give 1 or more")
        if self.allocator and not _ALLOCATOR.fullmatch(self.allocator):
            raise UsageError(
                f"allocator setting {self.allocator!r} is not in PyTorch's form option:value,option:value",
                hint="for example --allocator expandable_segments:True,max_split_size_mb:128",
            )

    @property
    def environment(self) -> dict[str, str]:
        """Variables to set before the accelerator starts; empty for the default allocator."""
        return dict.fromkeys(ALLOCATOR_VARIABLES, self.allocator) if self.allocator else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The fingerprint under which results are valid."""

    device: str
    """torch device type: ``cpu``, ``cuda``."""
    device_name: str
    device_uuid: str
    """Empty where the device has none."""
    device_index: int
    capacity_bytes: int
    """Physical memory of the device."""
    driver_version: str
    torch_version: str
    cuda_version: str
    python_version: str
    platform: str

    @property
    def fingerprint(self) -> str:
        """Hash of everything that makes measurements comparable; the index is not part of it."""
        facts = asdict(self)
        del facts["device_index"]
        return digest(facts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Device-wide bytes the job may use, and how that number came about."""

    limit_bytes: int
    """The device-wide peak of the job must stay at or under this."""
    source: str
    """What set it: ``--memory-limit``, ``device``, ``cgroup``, ``rlimit``, ``available memory``."""
    capacity_bytes: int
    others_bytes: int
    """Held by other processes when the search began; 0 under ``--memory-limit``."""
    headroom_bytes: int
    """Left free on purpose; 0 under ``--memory-limit``."""
    caller_bytes: int = 0
    """CPU, ``find_max_batch``: what the calling process holds beyond a fresh one; taken off the limit, since training
    goes on there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One probe to run."""

    batch_size: int
    form: Form
    reason: Reason


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
class Measurement:
    """What a probe saw, complete or up to its failure."""

    steps_asked: int = 0
    steps_executed: int = 0
    """Optimizer steps that really changed the parameters."""
    steps_skipped: int = 0
    """Optimizer steps the gradient scaler refused."""
    observed_batch: int | None = None
    """Leading dimension really seen in the batch."""
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
    build_seconds: float | None = None
    """Making the model and optimizer and placing them."""
    loop_seconds: float | None = None
    """Wall time of all steps, evaluation and checkpoint, batches included."""
    worker_seconds: float | None = None
    """From the start of the probe process to its answer."""

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
    traceback: str = ""
    """The user's own traceback, frames of autotune left out."""
    hint: str = ""


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
    accumulate: int = 1
    """Micro-batches per optimizer step the probe ran with."""
    stdout_tail: str = ""
    stderr_tail: str = ""

    @property
    def fits(self) -> bool:
        """True for a probe that ran to its end and was safe."""
        return self.outcome is Outcome.FITS

    @property
    def samples_per_second(self) -> float | None:
        """Throughput of a whole optimizer step (all its micro-batches); None where nothing was timed."""
        step = self.measurement.median_step_seconds
        return self.batch_size * self.accumulate / step if step else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recognised:
    """One thing found (or not) in the workload, for ``autotune inspect``."""

    what: str
    """``model``, ``batch``, ``loss``, ``optimizer``, ``evaluate``, ``data set``."""
    found: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadInfo:
    """What a worker learned of the workload without training it."""

    ref: str
    fingerprint: str
    recognised: tuple[Recognised, ...]
    parameters: int
    """Number of parameters."""
    trainable_parameters: int
    parameters_bytes: int
    trainable_bytes: int
    optimizer: str
    batch: str
    """Shapes and types of a batch, in words."""
    data_set_size: int | None
    """Upper bound for the batch; None where the workload has no data set or it has no length."""
    evaluates: bool
    process_bytes: int = 0
    """Private memory of a probe process with the workload loaded and nothing built; 0 where the kernel does not say."""
    step_imports_bytes: int = 0
    """How much of it is for what PyTorch imports at the first optimizer step, which others import only then."""
    notes: tuple[str, ...] = ()
    """What the user should know: data only sampled, fork unsafe …"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where the workload comes from: a reference to load, or pickled live objects."""

    ref: str
    """``FILE.py[:NAME]``, ``pkg.mod[:NAME]``, or a name for the live objects."""
    pickle_path: str = ""
    """File with the cloudpickled live objects; empty for a reference."""
    fingerprint: str = ""
    """Fingerprint of the live objects' code; empty for a reference."""
    script_args: tuple[str, ...] = ()
    directory: str = ""
    """Working directory of the workload."""
    search_path: tuple[str, ...] = ()
    """Extra ``sys.path`` entries of the caller (live objects)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything a search was asked for."""

    source: Source
    settings: Settings = field(default_factory=Settings)
    device: str = "auto"
    memory_limit_bytes: int | None = None
    multiple_of: int = 1
    start_batch: int | None = None
    """First size to try; None = the smallest."""
    max_batch: int | None = None
    timeout_s: float = 300.0
    """Wall limit of one probe."""
    time_budget_s: float | None = None
    """Wall limit of the whole search; None = none."""
    seed: int = 0
    recommend: bool = True
    """Also certify the smallest batch within 2 % of the best throughput."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the strategy concludes from a history."""

    max_batch: int
    """Largest certified batch size."""
    refuted_at: int | None
    """Smallest executed size above it that is not safe; None when a bound, not a failure, ended the search."""
    recommended_batch: int
    """Smallest certified size within 2 % of the best throughput (= max_batch when not looked for)."""
    limited_by: str
    """The cause of the refutation, or ``max_batch`` / ``data_set``."""
    step: int
    """Sizes are multiples of this: ``--multiple-of``, or what the workload was seen to demand."""
    holes: tuple[int, ...] = ()
    """Sizes below the answer that failed although larger ones ran."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """The strategy is done."""

    reason: str
    """Why, for the report. Never empty."""
    answer: Answer | None
    """None when nothing fits or the workload itself fails; the history then tells which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """The answer with its evidence."""

    search_id: str
    plan: Plan
    workload: WorkloadInfo
    machine: Machine
    budget: Budget
    answer: Answer
    probes: tuple[ProbeResult, ...]
    """All probes the answer rests on, oldest first, reused ones included."""
    new_probes: int
    """How many of them this call ran itself."""
    seconds: float
    created: datetime
    warnings: tuple[str, ...] = ()
    from_ledger: bool = False
    """True when an earlier answer was confirmed by one probe instead of searched again."""

    @property
    def certificate(self) -> ProbeResult:
        """The long probe that certified ``max_batch``."""
        return next(
            p for p in reversed(self.probes) if p.batch_size == self.answer.max_batch and p.form is Form.LONG and p.fits
        )

    @property
    def refutation(self) -> ProbeResult | None:
        """The probe that refuted ``refuted_at``."""
        failed = [p for p in self.probes if p.batch_size == self.answer.refuted_at and not p.fits]
        return failed[-1] if failed else None


class SearchState(StrEnum):
    """What became of a search."""

    RUNNING = "running"
    ANSWERED = "answered"
    NO_ANSWER = "no_answer"
    """Nothing fits, or the workload itself fails: final, not resumable."""
    INTERRUPTED = "interrupted"
    """Stopped from outside or out of time; resumable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRecord:
    """One search as the ledger keeps it."""

    id: str
    key: str
    """Hash of workload fingerprint, machine fingerprint, settings, limit and bounds: equal keys, equal question."""
    state: SearchState
    created: datetime
    finished: datetime | None = None
    owner: str
    """``host:pid:start-time`` of the process that runs it."""
    version: str
    """autotune's version."""
    plan: Plan
    workload: WorkloadInfo
    machine: Machine
    budget: Budget
    answer: Answer | None = None
    message: str = ""
    """Why it ended, in a sentence."""
    based_on: str | None = None
    """Id of the earlier search whose answer this one confirmed."""


def digest(facts: object) -> str:
    """SHA-256 (hex) of a JSON-able value in canonical form."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
