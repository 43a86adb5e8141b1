"""The words that probes and searches are described with."""

from enum import StrEnum


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
    CHANGES_TRAINING = "changes_training"
    """Ran, and trained something else than the reference does: never recommended, however fast."""
    UNRELIABLE = "unreliable"
    """Other processes on the device changed so much meanwhile that the probe proves nothing."""

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
    SPILLED = "spilled"
    """The driver put memory of the device into the host's (Windows, WSL)."""
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
    GRADIENTS_LOST = "gradients_lost"
    """Parameters that the reference trains get no gradient, or the other way round."""
    GRADIENTS_DIFFER = "gradients_differ"
    """Direction or size of the gradient is further from the reference than the precision explains."""
    LOSS_DIFFERS = "loss_differs"
    BUFFERS_DIFFER = "buffers_differ"
    """Buffers such as running statistics end up elsewhere."""
    ENVIRONMENT = "environment"
    """Driver, device or installation trouble."""
    OTHERS = "others"
    """Other processes took or gave back memory of the device."""
    LOST = "lost"
    """The worker that ran the probe is gone: preempted, killed, its host or cluster restarted."""


class Form(StrEnum):
    """What a probe does. Only the long form certifies."""

    SHORT = "short"
    LONG = "long"
    TIMED = "timed"
    """Enough steps to compare their times with those of other settings."""
    COMPARE = "compare"
    """Trains a few seeded steps on a small batch under reference and candidate settings, and compares the two."""
    LOADING = "loading"
    """Takes batches from the data loader and trains nothing; its step times are those of loading."""
    EVALUATE = "evaluate"
    """Trains at a small batch until the optimizer's state is there, evaluates at a size of its own, trains once more."""

    @property
    def steps(self) -> int:
        """Training steps that must really happen.

        Short: step 1 makes the optimizer's state, step 2 is the first with it resident, step 3 shows that it stays.
        Long: four steps, evaluation and checkpoint, four steps; more where they differ in memory (``probe.settling``).
        Timed: two to warm up and eight that count.
        Compare: three under each settings.
        Loading: batches taken.
        Evaluate: three as in the short form, evaluation, one more.
        """
        return {
            Form.SHORT: 3,
            Form.LONG: 8,
            Form.TIMED: 10,
            Form.COMPARE: 3,
            Form.LOADING: 8,
            Form.EVALUATE: 4,
        }[self]

    @property
    def steps_before_pause(self) -> int | None:
        """Training steps before an evaluation in the middle; None where there is no such middle."""
        return {Form.LONG: 4, Form.EVALUATE: 3}.get(self)

    @property
    def warm_up(self) -> int:
        """First steps whose times are left out."""
        return 2 if self is Form.TIMED else 1

    @property
    def steady_steps(self) -> int:
        """Steps at the end in which the allocator must not retry; earlier ones are warm-up.

        On an H200 under 40 GiB ResNet-50 retries 3, 2, 0, 0, … times a step at batch 480 and 4, 3, 3, 4, 3, 1, 0, 0 at
        485, where it is 4 % slower: half of the long form must be clean.
        """
        return {Form.LONG: 4, Form.TIMED: 4}.get(self, 2)

    @property
    def rotating_steps(self) -> int:
        """First executed steps that go through the candidates for the worst batch, where there are several; later ones
        train on the first, as do all steps of the other forms: steady state, times and recordings want like batches."""
        return {Form.SHORT: 3, Form.LONG: 4}.get(self, 0)

    @property
    def mixtures(self) -> tuple[tuple[float, ...], ...]:
        """Shares of the full length that steps before those above train on, where the workload's lengths vary. Each
        sequence begins with nothing cached, as a training of its own would.

        Full length in every step is not the worst case: on an H200 under 40 GiB GPT-2 does eight such steps at batch 27,
        and dies at 25 in the tenth step of a training whose texts differ in length, with 4.9 GiB reserved that no request
        fits into. How native segments fragment is chance: replayed trainings of 200 random steps, ten each, survive at
        24 to 27, those of BERT at 167 to 194, those of GPT-2 with checkpointing at 53 to 58. The first sequence is the
        shortest of about 1300 random ones that ends GPT-2 at 25 and GPT-2 with checkpointing at 50, the second the
        shortest of as many that ends BERT at 164. Expandable segments hardly fragment.
        """
        return ((0.36, 0.81, 1.0), (0.74, 0.28, 0.71, 1.0, 0.47, 0.95, 1.0)) if self is Form.LONG else ()


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
    TRACE = "trace"
    """Recording what the allocator does at a few small sizes, for the memory model."""
    PREDICTED = "predicted"
    """Certifying the limit the memory model predicts."""
    REFUTE = "refute"
    """Showing that the next size is too large."""
    ALLOCATOR = "allocator"
    """Trying the next size under another configuration of the allocator."""
    BASELINE = "baseline"
    """The user's own settings, to compare others with."""
    KNOWN = "known"
    """Settings that are known to pay on such devices."""
    CHANGE = "change"
    """The best settings so far with one knob changed."""
    SAMPLED = "sampled"
    """Settings proposed by the sampler."""
    LARGER = "larger"
    """Promising settings at a larger batch, which they leave room for."""
    COMPARE = "compare"
    """Showing that settings train the same as the reference."""
    LOADING = "loading"
    """Measuring how fast batches can be loaded."""
    CORRECT = "correct"
    """The model's prediction, corrected by what a probe measured."""

    @property
    def of_candidate(self) -> bool:
        """Whether the probe is the first of settings that the user does not have."""
        return self in (Reason.KNOWN, Reason.CHANGE, Reason.SAMPLED, Reason.LARGER)


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


class Objective(StrEnum):
    """What settings are chosen for."""

    THROUGHPUT = "throughput"
    """Samples per second at a safe batch."""
    BATCH = "batch"
    """The largest safe batch."""
    MEMORY = "memory"
    """The least memory at the wanted batch (``max_batch``, or the baseline's own)."""
