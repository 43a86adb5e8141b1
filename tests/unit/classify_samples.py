"""Makes evidence for the classifier's tests: exceptions as a worker reports them."""

from autotune.probe.classify import Raised
from autotune.probe.ended import Ended

CUDA_OOM = (
    "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 79.10 GiB of which 1.20 GiB is "
    "free. Including non-PyTorch memory, this process has 77.80 GiB memory in use. Of the allocated memory 74.00 GiB "
    "is allocated by PyTorch, and 120.54 MiB is reserved by PyTorch but unallocated. If reserved but unallocated "
    "memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
)
CPU_OOM = (
    "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: "
    "you tried to allocate 419430400 bytes. Error code 12 (Cannot allocate memory)"
)
ENDED = Ended(
    zygote=False,
    answer=None,
    mark=None,
    exit_code=0,
    signal=None,
    timed_out=False,
    garbage_bytes=0,
    host_oom_kills=0,
    seconds=1.0,
)
"""A process that said nothing, and no more is known of."""
_PARENTS = {
    "builtins.RuntimeError": (),
    "builtins.NotImplementedError": ("builtins.RuntimeError",),
    "builtins.RecursionError": ("builtins.RuntimeError",),
    "builtins.ModuleNotFoundError": ("builtins.ImportError",),
    "builtins.UnboundLocalError": ("builtins.NameError",),
    "builtins.FileNotFoundError": ("builtins.OSError",),
    "builtins.BrokenPipeError": ("builtins.ConnectionError", "builtins.OSError"),
    "builtins.ExceptionGroup": ("builtins.BaseExceptionGroup",),
    "torch.OutOfMemoryError": ("builtins.RuntimeError",),
    "torch.AcceleratorError": ("builtins.RuntimeError",),
    "torch.distributed.DistBackendError": ("torch.distributed.DistError", "builtins.RuntimeError"),
    "torch.multiprocessing.spawn.ProcessRaisedException": ("torch.multiprocessing.spawn.ProcessException",),
    "torch.multiprocessing.spawn.ProcessExitedException": ("torch.multiprocessing.spawn.ProcessException",),
    "numpy._core._exceptions._ArrayMemoryError": ("builtins.MemoryError",),
    "cupy.cuda.memory.OutOfMemoryError": ("builtins.MemoryError",),
    "triton.runtime.errors.OutOfResources": ("triton.errors.TritonError",),
    "model.TwoArguments": ("builtins.RuntimeError",),
    "model.ChunkOutOfMemoryError": (),
}


def raised(type_: str, text: str = "", *, errno: int | None = None) -> Raised:
    """One exception of a qualified type, with the classes it really has."""
    ends = () if type_ in ("builtins.KeyboardInterrupt", "builtins.SystemExit") else ("builtins.Exception",)
    bases = (type_, *_PARENTS.get(type_, ()), *ends, "builtins.BaseException")
    return Raised(type=type_, bases=bases, text=text, errno=errno)


def runtime_error(text: str) -> Raised:
    """A plain RuntimeError, the most frequent disguise."""
    return raised("builtins.RuntimeError", text)
