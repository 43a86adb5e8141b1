"""The words a probe is described with."""

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
    OTHERS = "others"
    """Other processes took or gave back memory of the device."""


class Form(StrEnum):
    """How long a probe is. Only the long form certifies."""

    SHORT = "short"
    LONG = "long"

    @property
    def steps(self) -> int:
        """Training steps that must really happen.

        Short: step 1 makes the optimizer's state, step 2 is the first with it resident, step 3 shows that it stays.
        Long: four steps, evaluation and checkpoint, four steps.
        """
        return {Form.SHORT: 3, Form.LONG: 8}[self]

    @property
    def steady_steps(self) -> int:
        """Steps at the end in which the allocator must not retry; earlier ones are warm-up.

        On an H200 under 40 GiB ResNet-50 retries 3, 2, 0, 0, … times a step at batch 480 and 4, 3, 3, 4, 3, 1, 0, 0 at
        485, where it is 4 % slower: half of the long form must be clean.
        """
        return {Form.SHORT: 2, Form.LONG: 4}[self]

    @property
    def mixture(self) -> tuple[float, ...]:
        """Shares of the full length that more steps train on, after those above, where the workload's lengths vary.

        Full length in every step is not the worst case: on an H200 under 40 GiB GPT-2 does eight such steps at batch 27
        and dies in the tenth of a training whose texts differ in length, with 5.2 GiB reserved that no request fits
        into. How native segments fragment is chance. This order was taken from 70 random ones because it runs out early
        for GPT-2 and BERT alike: after the steps above at 26 and 168, where replayed trainings of 200 random steps (three
        each) do from 26 to 28 and from about 167 to 188. Others are stricter for one of the two.
        """
        return {Form.SHORT: (), Form.LONG: (0.72, 0.52, 0.65, 0.3, 1.0, 0.4, 0.75, 0.56, 0.48, 1.0)}[self]


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
    CORRECT = "correct"
    """The model's prediction, corrected by what a probe measured."""


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
