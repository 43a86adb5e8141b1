"""The words in which libraries, drivers and operating systems report failure: tables only, decided in ``classify``.

Texts are compared in lower case and as substrings, because their surroundings change from release to release. A text
counts only under the exception types that really carry it: a ``ValueError`` that talks of memory is not one.
"""

from dataclasses import dataclass
from enum import Enum, auto


class Kind(Enum):
    """What a recognised text says."""

    POISON = auto()
    """The device context is unusable."""
    KERNEL_RESOURCES = auto()
    """One kernel wants more on-chip memory or registers than a block has: looks like memory, is not."""
    ENVIRONMENT = auto()
    NOT_SUPPORTED = auto()
    NOT_COMPILED = auto()
    """``torch.compile`` wraps whatever stops it in an error of its own, which says less than its cause."""
    LIMIT = auto()
    """A size limit that more memory would not lift."""
    SHARED = auto()
    """The shared-memory mount of the host is full."""
    HOST = auto()
    LOADER_KILLED = auto()
    """A data loader worker vanished: host memory, for certain only if the kernel's counter agrees."""
    LOADER_CRASHED = auto()
    DEVICE = auto()
    RUNTIME_CALL = auto()
    """The device runtime's own out-of-memory, which pinned host memory reports in the same words."""
    ALLOC_FAILED = auto()
    """cuBLAS or cuDNN could not allocate: memory, unless plenty is known to be free."""
    ALLOC_STATUS = auto()
    """Another library says so: memory only if little is known to be free."""
    STATUS = auto()
    """A library status that may be memory, a bug or a broken installation."""
    MASKED = auto()
    """An internal assertion or driver state behind which an out-of-memory may hide."""
    HOST_MASKED = auto()
    """oneDNN primitives, threads and the interpreter itself fail without naming memory when the process has reached its
    memory limit."""


RUNTIME = frozenset({"RuntimeError", "AcceleratorError", "XlaRuntimeError", "ResourceExhaustedError", "CudaAPIError"})
"""Unqualified types under which native code reports failure; subclasses count."""
NOT_RUNTIME = frozenset({"NotImplementedError", "RecursionError"})
"""Subclasses of RuntimeError that Python and PyTorch use for something else."""
ANY = frozenset({"BaseException"})
COMPILER_MODULES = ("torch._dynamo.", "torch._inductor.")
"""Where torch.compile defines what it raises. Triton is not among them: users write kernels of their own in it."""
OWN_MODULES = ("autotune.apply.",)
COMPILER_OUTPUT = ("cppcompileerror", "c++ compile error")
"""Beneath these a compiler's own words are quoted: what it says of memory is about its own. Lower case."""


@dataclass(frozen=True, slots=True)
class Signature:
    """One recognisable failure."""

    kind: Kind
    texts: tuple[str, ...]
    """Lower case; all of them must occur."""
    types: frozenset[str] = RUNTIME
    confirm: bool = False
    hint: str = ""
    """Replaces the hint of the kind."""

    def matches(self, names: frozenset[str], lowered: str) -> bool:
        """True for an exception whose unqualified class names and lower-case text fit."""
        if not names & self.types or (self.types is RUNTIME and names & NOT_RUNTIME):
            return False
        return all(text in lowered for text in self.texts)


def _rows(
    kind: Kind, *rows: str | tuple[str, ...], types: frozenset[str] = RUNTIME, confirm: bool = False, hint: str = ""
) -> tuple[Signature, ...]:
    texts = [(row,) if isinstance(row, str) else row for row in rows]
    return tuple(Signature(kind, row, types=types, confirm=confirm, hint=hint) for row in texts)


NEVER_MEMORY: tuple[Signature, ...] = (
    *_rows(
        Kind.POISON,
        "an illegal memory access was encountered",
        "unspecified launch failure",
        "device-side assert triggered",
        "status_mapping_error",
        "misaligned address",
        "an illegal instruction was encountered",
        "cuda error: unknown error",
        "memory access fault by gpu",
    ),
    *_rows(Kind.KERNEL_RESOURCES, "out of resource: ", types=ANY),
    *_rows(Kind.KERNEL_RESOURCES, "too many resources requested for launch"),
    *_rows(
        Kind.ENVIRONMENT,
        "no kernel image is available",
        "driver version is insufficient",
        "no cuda gpus are available",
        "no hip gpus are available",
        "no cuda-capable device is detected",
        "cuda unknown error",
        "not compiled with cuda enabled",
        "found no nvidia driver",
        "nvidia driver on your system is too old",
        "devices are busy or unavailable",
        "invalid device ordinal",
        "unsupported display driver / cuda driver combination",
        "forward compatibility was attempted on non supported hw",
        "uncorrectable ecc error",
        "cudnn version incompatibility",
        "cannot re-initialize cuda in forked subprocess",
        types=RUNTIME | {"AssertionError", "DeferredCudaCallError"},
    ),
    *_rows(
        Kind.ENVIRONMENT,
        ("failed to map segment from shared object", "operation not permitted"),
        types=frozenset({"ImportError", "OSError"}),
        hint="the library lies on a file system mounted noexec: install it, or set TMPDIR, elsewhere",
    ),
    *_rows(Kind.NOT_COMPILED, "failed to find c compiler"),
    *_rows(Kind.NOT_COMPILED, ("triton", "non-zero exit status"), types=frozenset({"CalledProcessError"})),
    *_rows(
        Kind.NOT_COMPILED,
        "accessing tensor output of cudagraphs that has been overwritten",
        hint="CUDA graphs write each result where the last one was, and this workload keeps it: --fix compile=default",
    ),
    *_rows(
        Kind.NOT_SUPPORTED,
        "torch.utils.checkpoint",
        types=frozenset({"CheckpointError"}),
        hint="go on without checkpointing: run a second time, this part of the model does something else",
    ),
    *_rows(
        Kind.NOT_SUPPORTED,
        "attempting to unscale fp16 gradients",
        types=frozenset({"ValueError"}),
        hint="keep the parameters in float32 and let autocast choose: a gradient scaler cannot work on half weights",
    ),
    *_rows(
        Kind.NOT_SUPPORTED,
        "not implemented for 'half'",
        "not implemented for 'bfloat16'",
        "not implemented for 'float8",
        "does not support bfloat16",
        "is not currently implemented for the mps device",
        types=RUNTIME | NOT_RUNTIME | {"ValueError", "TypeError"},
    ),
)
"""Decided by text before the type is looked at: no word of memory in these may count."""

_LIMITS = (
    *_rows(
        Kind.LIMIT,
        "canuse32bitindexmath",
        "32-bit index math",
        "int_max elements",
        "kint32max",
        "invalid configuration argument",
        "integer out of range",
        ("numel", "overflow"),
        "tensor too large",
        "tensor is too large",
        "storage size calculation overflowed",
        "storage size overflowed",
        "stride calculation overflowed",
        "invalid buffer size:",
    ),
    *_rows(Kind.LIMIT, "maximum allowed dimension exceeded", "array is too big", types=frozenset({"ValueError"})),
)
_HOST = (
    *_rows(
        Kind.SHARED,
        ("dataloader worker", "bus error"),
        ("dataloader", "out of shared memory"),
        "insufficient shared memory (shm)",
        "unable to allocate shared memory(shm)",
        "couldn't allocate shared memory segment",
        "creating shared memory segment",
        ("/torch_", "no space left on device"),
    ),
    *_rows(Kind.SHARED, ("shm", "no space left on device"), types=frozenset({"OSError", "RuntimeError"})),
    *_rows(
        Kind.LOADER_KILLED,
        ("dataloader worker", "is killed by signal: killed"),
        ("dataloader worker", "exited unexpectedly"),
        "pin memory thread exited unexpectedly",
    ),
    *_rows(Kind.LOADER_CRASHED, ("dataloader worker", "is killed by signal")),
    *_rows(
        Kind.HOST,
        ("defaultcpuallocator", "can't allocate memory"),
        ("defaultcpuallocator", "not enough memory"),
        "c10 out of memory",
        "cannot allocate memory",
        "dfti error: not enough memory",
        "std::bad_alloc",
        "out_of_host_memory",
    ),
    # The loader found no room for a library: asked for in one piece, it may fail with a good deal of memory left.
    *_rows(Kind.HOST, "failed to map segment from shared object", types=RUNTIME | {"ImportError", "OSError"}),
)
_ALLOCATING_LIBRARIES = (
    *_rows(
        Kind.ALLOC_FAILED,
        "cublas_status_alloc_failed",
        "cudnn_status_alloc_failed",
        "hipblas_status_alloc_failed",
        "miopenstatusallocfailed",
    ),
    *_rows(Kind.ALLOC_STATUS, "alloc_failed", "curand_status_allocation_failed", "rocblas_status_memory_error"),
)
_DEVICE = (
    *_rows(Kind.RUNTIME_CALL, "cuda error: out of memory", "hip error: out of memory"),
    *_rows(
        Kind.DEVICE,
        "cuda out of memory",
        "would exceed allowed memory",
        "cuda driver error: out of memory",
        "failed to cuda calloc",
        "failed to cuda malloc",
        "cuda failure 2 'out of memory'",
        "mps backend out of memory",
        "xpu out of memory",
        "allocation is out of device memory",
        "out_of_device_memory",
        "hip out of memory",
        "resource_exhausted",
        "resource exhausted",
        "ran out of memory in memory space",
        ("attempting to reserve", "that was not possible"),
        ("attempting to allocate", "that was not possible"),
        ("pt_devmem", "allocation failed"),
        "out of memory",
        "out_of_memory",
        "outofmemory",
        "cudaerrormemoryallocation",
    ),
    *_rows(Kind.DEVICE, "device lost", "device_lost", confirm=True),
)
_AMBIGUOUS = (
    *_rows(
        Kind.MASKED,
        ("internal assert failed", "cudacachingallocator"),
        ("internal assert failed", "nvml_success"),
        "device not ready",
        "error_out_of_resources",
    ),
    *_rows(
        Kind.STATUS,
        "cublas_status_",
        "cudnn_status_",
        "cufft error",
        "cusolver_status_",
        "cusparse_status_",
        "curand_status_",
        "rocblas_status_",
        "hipblas_status_",
        "miopenstatus",
        "unable to find an engine",
        "unable to find a valid cudnn algorithm",
        "no execution plans support the graph",
    ),
    *_rows(
        Kind.STATUS,
        "nccl error",
        "unhandled cuda error",
        "socket closed by remote peer",
        ("gloo", "connection closed by peer"),
        "collective operation timeout",
        hint="look at the rank that failed first: the others only lost contact with it",
    ),
    *_rows(
        Kind.HOST_MASKED,
        "could not create a primitive",
        "could not execute a primitive",
        "can't start new thread",
        "resource temporarily unavailable",
        "error return without exception set",
    ),
)
SIZE_OR_MEMORY: tuple[Signature, ...] = (*_LIMITS, *_HOST, *_ALLOCATING_LIBRARIES, *_DEVICE, *_AMBIGUOUS)
"""Decided after the type; the first that fits wins, so special texts stand before general ones."""

NATIVE: tuple[Signature, ...] = (
    *_rows(Kind.POISON, "memory access fault by gpu"),
    *_rows(Kind.SHARED, "insufficient shared memory (shm)"),
    *_rows(
        Kind.HOST,
        "std::bad_alloc",
        ("memory allocation of", "bytes failed"),
        "intel onemkl dfti error: not enough memory",
        ("intel onemkl", "cannot allocate memory"),
    ),
    *_rows(
        Kind.DEVICE,
        "failed to cuda calloc",
        "failed to cuda malloc",
        "cuda failure 2 'out of memory'",
        "cuda failure 'out of memory'",
        ("pt_devmem", "allocation failed"),
        "resource_exhausted",
        confirm=True,
    ),
    *_rows(Kind.HOST_MASKED, "thread creation failed: resource temporarily unavailable"),
)
"""What processes that die without an exception leave on their error output; looser words would match any log."""

BUGS = frozenset(
    {
        "NameError",
        "AttributeError",
        "ImportError",
        "SyntaxError",
        "TypeError",
        "NotImplementedError",
        "KeyError",
        "FileNotFoundError",
        "NotADirectoryError",
        "IsADirectoryError",
        "PermissionError",
        "PicklingError",
    }
)
"""Unqualified types of errors that cannot depend on the batch size; subclasses count."""

CARRIERS = frozenset({"ChildFailedError", "ProcessExitedException", "ProcessRaisedException", "CalledProcessError"})
"""Exceptions by which a launcher reports that one of its processes failed; its error is in their text."""

LOST_CONTACT = frozenset({"EOFError", "ConnectionError", "BrokenExecutor"})
"""What a process sees when another one it talks to is gone; explained by a kill the kernel has counted."""
