"""Every message by which a library, driver or system reports a failure means what it means."""

import errno

import pytest

from autotune.model import Cause, Outcome, Phase
from autotune.probe.classify import Evidence, Raised, classify
from autotune.probe.signatures import NEVER_MEMORY, SIZE_OR_MEMORY
from autotune.units import GIB
from tests.unit.classify_samples import CPU_OOM, CUDA_OOM, raised, runtime_error

AS_ACCELERATOR = "torch.AcceleratorError"
NCCL = (
    "NCCL error in: /pytorch/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:3699, unhandled cuda error, "
    "NCCL version 2.27.3\nncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\n"
)
ASYNC = (
    "Allocation on device 0 would exceed allowed memory. (out of memory)\nCurrently allocated     : 22.43 GiB\n"
    "Requested               : 4.07 GiB\nDevice limit            : 24.00 GiB\nFree (according to CUDA): 512.00 MiB"
)

LIBRARY = (Outcome.CRASHED, Cause.LIBRARY_STATUS, True)
TOO_LARGE = (Outcome.SIZE_LIMIT, Cause.SIZE_LIMIT, False)
PERHAPS_DEVICE_MEMORY = (Outcome.OUT_OF_MEMORY, Cause.DEVICE_MEMORY, True)
PERHAPS_MEMORY = (Outcome.CRASHED, Cause.MASKED_MEMORY, True)
CONTEXT_LOST = (Outcome.CRASHED, Cause.CONTEXT_LOST, True)
DEVICE_MEMORY = (Outcome.OUT_OF_MEMORY, Cause.DEVICE_MEMORY, False)
SHARED_MEMORY = (Outcome.HOST_OUT_OF_MEMORY, Cause.SHARED_MEMORY, False)
NO_DEVICE = (Outcome.UNSUPPORTED, Cause.ENVIRONMENT, False)
NOT_SUPPORTED = (Outcome.UNSUPPORTED, Cause.NOT_SUPPORTED, False)
USER_CODE = (Outcome.WORKLOAD_ERROR, Cause.USER_CODE, False)
PERHAPS_HOST_MEMORY = (Outcome.HOST_OUT_OF_MEMORY, Cause.HOST_MEMORY, True)
CPU_MEMORY = (Outcome.OUT_OF_MEMORY, Cause.HOST_MEMORY, False)
"""Outcome, cause, and whether it has to be confirmed."""

DEVICE_FORMS = [
    raised("torch.OutOfMemoryError", CUDA_OOM),
    raised("torch.cuda.OutOfMemoryError", ""),
    runtime_error(CUDA_OOM),
    runtime_error("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"),
    raised(
        AS_ACCELERATOR, "CUDA error: out of memory\nCompile with `TORCH_USE_CUDA_DSA` to enable device-side assertions."
    ),
    raised("torch.OutOfMemoryError", ASYNC),
    runtime_error(ASYNC),
    runtime_error("CUDA driver error: out of memory"),
    runtime_error("HIP out of memory. Tried to allocate 96.00 MiB. GPU 0 has a total capacity of 15.98 GiB"),
    runtime_error("HIP error: out of memory"),
    raised(
        "torch.distributed.DistBackendError",
        NCCL + "Failed to CUDA calloc 10485760 bytes",
    ),
    raised("torch.distributed.DistBackendError", NCCL + "Failed to CUDA calloc async 6291456 bytes"),
    raised("torch.distributed.DistBackendError", NCCL + "Cuda failure 2 'out of memory'"),
    raised("torch.distributed.DistBackendError", NCCL + "Cuda failure 'out of memory'"),
    runtime_error(
        "MPS backend out of memory (MPS allocated: 17.36 GB, other allocations: 613.56 MB, max allowed: 18.13 GB)."
    ),
    runtime_error("XPU out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 15.91 GiB."),
    runtime_error("Allocation is out of device memory on current platform."),
    runtime_error("level_zero backend failed with error: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)"),
    runtime_error("RESOURCE_EXHAUSTED: Attempting to reserve 5.78G at the bottom of memory. That was not possible."),
    runtime_error("Resource exhausted: Ran out of memory in memory space hbm. Used 20.2G of 15.48G hbm."),
    runtime_error("Ran out of memory in memory space hbm. Exceeded hbm capacity by 4.8G."),
    runtime_error("Attempting to allocate 2.00G. That was not possible. There are 1.50G free."),
    raised("tensorflow.python.framework.errors_impl.ResourceExhaustedError", "Out Of Memory when allocating tensor"),
    runtime_error("FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::1073741824 (1024)MB"),
    runtime_error("NPU out of memory. Tried to allocate 2.00 GiB"),
    runtime_error("MLU OUT OF MEMORY"),
    runtime_error("hipErrorOutOfMemory"),
    raised(
        "cupy.cuda.memory.OutOfMemoryError", "Out of memory allocating 1,048,576 bytes (allocated so far: 0 bytes)."
    ),
    raised("model.TwoArguments", "('CUDA out of memory', 17)"),
    raised("model.ChunkOutOfMemoryError", ""),
    runtime_error("Triton Error [CUDA]: out of memory"),
]


@pytest.mark.parametrize("form", DEVICE_FORMS, ids=lambda form: form.text[:40] or form.type)
@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_c14_every_wording_of_exhausted_device_memory_is_out_of_memory(form: Raised, device: str) -> None:
    outcome, failure = classify(Evidence(raised=(form,), phase=Phase.FORWARD, step=1, device=device))
    assert (outcome, failure.cause, failure.confirm) == DEVICE_MEMORY
    assert failure.error_type == form.type
    assert (failure.phase, failure.step) == (Phase.FORWARD, 1)
    assert failure.hint


HOST_FORMS = [
    runtime_error(CPU_OOM),
    runtime_error(
        "[enforce fail at alloc_cpu.cpp:117] data. DefaultCPUAllocator: not enough memory: you tried to allocate 8"
    ),
    raised("builtins.MemoryError", ""),
    raised("builtins.MemoryError", "std::bad_alloc"),
    raised(
        "numpy._core._exceptions._ArrayMemoryError", "Unable to allocate 7.45 GiB for an array with shape (1000000000,)"
    ),
    raised("builtins.OSError", "[Errno 12] Cannot allocate memory", errno=errno.ENOMEM),
    runtime_error("unable to mmap 1024 bytes from file <weights.bin>: Cannot allocate memory (12)"),
    runtime_error("MKL FFT error: Intel oneMKL DFTI ERROR: Not enough memory to allocate"),
]


@pytest.mark.parametrize("form", HOST_FORMS, ids=lambda form: form.text[:40] or form.type)
def test_host_memory_is_the_device_memory_on_the_cpu_and_another_constraint_elsewhere(form: Raised) -> None:
    outcome, failure = classify(Evidence(raised=(form,), device="cpu"))
    assert (outcome, failure.cause, failure.confirm) == CPU_MEMORY
    outcome, failure = classify(Evidence(raised=(form,), device="cuda"))
    assert (outcome, failure.cause, failure.confirm) == (Outcome.HOST_OUT_OF_MEMORY, Cause.HOST_MEMORY, False)


OTHER_FORMS = {
    # 3.1 allocator and driver, ambiguous
    "CUDA driver error: device not ready": PERHAPS_MEMORY,
    'NVML_SUCCESS == r INTERNAL ASSERT FAILED at "/pytorch/c10/cuda/CUDACachingAllocator.cpp":1016': PERHAPS_MEMORY,
    "!block->expandable_segment_ INTERNAL ASSERT FAILED at CUDACachingAllocator.cpp": PERHAPS_MEMORY,
    "Native API returns: -5 (PI_ERROR_OUT_OF_RESOURCES)": PERHAPS_MEMORY,
    # 3.2 libraries; the free memory is not known here
    "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`": PERHAPS_DEVICE_MEMORY,
    "cuDNN error: CUDNN_STATUS_ALLOC_FAILED": PERHAPS_DEVICE_MEMORY,
    "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`": LIBRARY,
    "CUDA error: CUBLAS_STATUS_INTERNAL_ERROR": LIBRARY,
    "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm`": LIBRARY,
    "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED. This error may appear if you passed in a non-contiguous input.": LIBRARY,
    "cuDNN error: CUDNN_STATUS_NOT_INITIALIZED": LIBRARY,
    "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR": LIBRARY,
    "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED": LIBRARY,
    "FIND was unable to find an engine to execute this computation": LIBRARY,
    "GET was unable to find an engine to execute this computation": LIBRARY,
    "Unable to find an engine to execute this computation": LIBRARY,
    "Unable to find a valid cuDNN algorithm to run convolution": LIBRARY,
    "cuFFT error: CUFFT_INTERNAL_ERROR": LIBRARY,
    "cuFFT error: CUFFT_ALLOC_FAILED": LIBRARY,
    "cusolver error: CUSOLVER_STATUS_INTERNAL_ERROR, when calling `cusolverDnCreate(handle)`": LIBRARY,
    "cusolver error: CUSOLVER_STATUS_ALLOC_FAILED": LIBRARY,
    "CUDA error: CUSPARSE_STATUS_INTERNAL_ERROR": LIBRARY,
    "CURAND_STATUS_ALLOCATION_FAILED": LIBRARY,
    "miopenStatusUnknownError": LIBRARY,
    # 3.3 other ranks
    NCCL + "Cuda failure 'invalid argument'": LIBRARY,
    "NCCL error: ncclRemoteError, socket closed by remote peer": LIBRARY,
    "[gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:4242": LIBRARY,
    "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7)": LIBRARY,
    # 3.4 limits
    "Expected canUse32BitIndexMath(input) && canUse32BitIndexMath(output) to be true, but got false.": TOO_LARGE,
    "input tensor must fit into 32-bit index math": TOO_LARGE,
    "nonzero is not supported for tensors with more than INT_MAX elements, See issue": TOO_LARGE,
    "CUDA error: invalid configuration argument": TOO_LARGE,
    "integer out of range": TOO_LARGE,
    "numel: integer multiplication overflow": TOO_LARGE,
    "tensor too large": TOO_LARGE,
    "Invalid buffer size: 12.34 GB": TOO_LARGE,
    "Storage size calculation overflowed with sizes=[4611686018427387904, 8]": TOO_LARGE,
    # 3.5 lost context
    "CUDA error: an illegal memory access was encountered": CONTEXT_LOST,
    "CUDA error: unspecified launch failure": CONTEXT_LOST,
    "CUDA error: device-side assert triggered": CONTEXT_LOST,
    "cuDNN error: CUDNN_STATUS_MAPPING_ERROR": CONTEXT_LOST,
    NCCL + "Cuda failure 700 'an illegal memory access was encountered'": CONTEXT_LOST,
    # 3.6 loader and shared memory
    "DataLoader worker (pid 7) is killed by signal: Killed. ": PERHAPS_HOST_MEMORY,
    "DataLoader worker (pid(s) 7, 8) exited unexpectedly": PERHAPS_HOST_MEMORY,
    "DataLoader worker (pid 7) is killed by signal: Segmentation fault. ": (Outcome.CRASHED, Cause.SIGNAL, False),
    "DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that dataloader's workers are out of "
    "shared memory. Please try to raise your shared memory limit.": SHARED_MEMORY,
    "unable to allocate shared memory(shm) for file </torch_42_1>: Resource temporarily unavailable (11)": SHARED_MEMORY,
    "unable to write to file </torch_42_1>: No space left on device (28)": SHARED_MEMORY,
    NCCL + "Error while creating shared memory segment /dev/shm/nccl-AbCd (size 9637888)": SHARED_MEMORY,
    # 3.7 an XPU that vanished, probably for want of memory
    "UR backend failed. UR backend returns:20 (UR_RESULT_ERROR_DEVICE_LOST)": PERHAPS_DEVICE_MEMORY,
    "device lost": PERHAPS_DEVICE_MEMORY,
    # the host, without a word of memory
    "could not create a primitive": PERHAPS_MEMORY,
    "can't start new thread": PERHAPS_MEMORY,
    # no device, no support
    "CUDA error: no kernel image is available for execution on the device": NO_DEVICE,
    "CUDA driver version is insufficient for CUDA runtime version": NO_DEVICE,
    "No CUDA GPUs are available": NO_DEVICE,
    "CUDA unknown error - this may be due to an incorrectly set up environment": NO_DEVICE,
    "\"addmm_impl_cpu_\" not implemented for 'Half'": NOT_SUPPORTED,
    "\"tril\" not implemented for 'BFloat16'": NOT_SUPPORTED,
    # kernel resources
    "out of resource: shared memory, Required: 262144, Hardware limit: 232448.": USER_CODE,
    "CUDA error: too many resources requested for launch": USER_CODE,
}


@pytest.mark.parametrize("text", OTHER_FORMS, ids=lambda text: text[-45:])
def test_every_other_known_text_means_what_it_means(text: str) -> None:
    outcome, failure = classify(Evidence(raised=(runtime_error(text),), phase=Phase.FORWARD, device="cuda"))
    assert (outcome, failure.cause, failure.confirm) == OTHER_FORMS[text]
    assert failure.hint


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        (
            raised("builtins.AssertionError", "Torch not compiled with CUDA enabled"),
            (Outcome.UNSUPPORTED, Cause.ENVIRONMENT),
        ),
        (
            raised("builtins.NotImplementedError", "\"linalg_svd_cpu\" not implemented for 'Half'"),
            (Outcome.UNSUPPORTED, Cause.NOT_SUPPORTED),
        ),
        (
            raised("builtins.ValueError", "Attempting to unscale FP16 gradients."),
            (Outcome.UNSUPPORTED, Cause.NOT_SUPPORTED),
        ),
        (raised("builtins.ValueError", "Maximum allowed dimension exceeded"), (Outcome.SIZE_LIMIT, Cause.SIZE_LIMIT)),
        (
            raised("builtins.OSError", "[Errno 28] No space left on device: '/dev/shm/x'", errno=errno.ENOSPC),
            (Outcome.HOST_OUT_OF_MEMORY, Cause.SHARED_MEMORY),
        ),
    ],
    ids=lambda value: value.text[:30] if isinstance(value, Raised) else "",
)
def test_texts_under_their_own_types(form: Raised, expected: tuple[Outcome, Cause]) -> None:
    outcome, failure = classify(Evidence(raised=(form,), phase=Phase.FORWARD, device="cuda"))
    assert (outcome, failure.cause) == expected


def test_no_entry_of_the_tables_is_shadowed_into_silence() -> None:
    for signature in (*NEVER_MEMORY, *SIZE_OR_MEMORY):
        name = min(signature.types)
        form = Raised(type=name, bases=(name,), text=" … ".join(signature.texts).upper())
        outcome, failure = classify(Evidence(raised=(form,), device="cuda"))
        assert outcome is not Outcome.WORKLOAD_ERROR or "on-chip" in failure.hint, signature


def test_c12_an_internal_assertion_elsewhere_is_not_taken_for_memory() -> None:
    text = 'isTensor() INTERNAL ASSERT FAILED at "../aten/src/ATen/core/ivalue_inl.h":122, please report a bug'
    outcome, failure = classify(Evidence(raised=(runtime_error(text),), phase=Phase.FORWARD, device="cuda"))
    assert (outcome, failure.cause, failure.confirm) == USER_CODE


@pytest.mark.parametrize("text", ["CUDA error: CUBLAS_STATUS_ALLOC_FAILED", "cuDNN error: CUDNN_STATUS_ALLOC_FAILED"])
@pytest.mark.parametrize(
    ("free", "capacity", "expected"),
    [
        (GIB, 80 * GIB, DEVICE_MEMORY),
        (2 * GIB, 80 * GIB, LIBRARY),
        (GIB // 4, 8 * GIB, DEVICE_MEMORY),
        (GIB, 8 * GIB, LIBRARY),
        (GIB // 4, GIB // 2, LIBRARY),
        (GIB // 4, None, DEVICE_MEMORY),
        (None, 80 * GIB, PERHAPS_DEVICE_MEMORY),
    ],
)
def test_c13_a_failed_library_allocation_is_memory_unless_plenty_was_free(
    text: str, free: int | None, capacity: int | None, expected: tuple[Outcome, Cause, bool]
) -> None:
    facts = Evidence(raised=(runtime_error(text),), device="cuda", free_bytes=free, capacity_bytes=capacity)
    outcome, failure = classify(facts)
    assert (outcome, failure.cause, failure.confirm) == expected


def test_c13_a_library_status_raised_on_the_cpu_does_not_listen_to_the_memory_of_the_host() -> None:
    form = runtime_error("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")
    outcome, failure = classify(
        Evidence(raised=(form,), device="cpu", free_bytes=30 * GIB, cap_bytes=40 * GIB, allocated_bytes=GIB)
    )
    assert (outcome, failure.cause, failure.confirm) == PERHAPS_DEVICE_MEMORY


def test_a_failed_library_allocation_under_a_full_cap_is_memory() -> None:
    facts = Evidence(
        raised=(runtime_error("CUDA error: CUBLAS_STATUS_ALLOC_FAILED"),),
        device="cuda",
        free_bytes=60 * GIB,
        capacity_bytes=20 * GIB,
        cap_bytes=20 * GIB,
        allocated_bytes=20 * GIB - 1,
    )
    assert classify(facts)[0] is Outcome.OUT_OF_MEMORY


def test_an_allocation_status_of_another_library_is_memory_only_where_little_is_known_to_be_free() -> None:
    form = runtime_error("cuFFT error: CUFFT_ALLOC_FAILED")
    outcome, failure = classify(Evidence(raised=(form,), device="cuda", free_bytes=1, capacity_bytes=80 * GIB))
    assert (outcome, failure.cause, failure.confirm) == PERHAPS_DEVICE_MEMORY


@pytest.mark.parametrize(
    "text", ["could not create a primitive", "could not execute a primitive", "can't start new thread"]
)
def test_a_nameless_failure_at_the_memory_limit_of_the_process_is_host_memory(text: str) -> None:
    facts = Evidence(
        raised=(runtime_error(text),), device="cpu", free_bytes=50 << 20, capacity_bytes=4 * GIB, cap_bytes=4 * GIB
    )
    outcome, failure = classify(facts)
    assert (outcome, failure.cause, failure.confirm) == (Outcome.OUT_OF_MEMORY, Cause.HOST_MEMORY, True)


@pytest.mark.parametrize("kind", ["ImportError", "OSError", "RuntimeError"])
@pytest.mark.parametrize("free_bytes", [None, 0, 3 * GIB])
def test_a_library_that_finds_no_room_is_host_memory_whatever_is_left(kind: str, free_bytes: int | None) -> None:
    form = raised(f"builtins.{kind}", "libgomp.so.1: failed to map segment from shared object")
    facts = Evidence(raised=(form,), phase=Phase.FORWARD, device="cpu", free_bytes=free_bytes, capacity_bytes=4 * GIB)
    outcome, failure = classify(facts)
    assert (outcome, failure.cause, failure.confirm) == CPU_MEMORY


def test_room_under_the_limit_of_the_process_is_counted_as_the_limit_counts() -> None:
    facts = Evidence(
        raised=(runtime_error("could not create a primitive"),),
        device="cpu",
        free_bytes=2 * GIB,
        allocated_bytes=4 * GIB,
        capacity_bytes=4 * GIB,
        cap_bytes=4 * GIB,
    )
    assert classify(facts)[1].cause is Cause.MASKED_MEMORY


def test_pinned_memory_fails_in_the_words_of_the_device() -> None:
    form = raised(AS_ACCELERATOR, "CUDA error: out of memory")
    pinned = Evidence(raised=(form,), device="cuda", capacity_bytes=80 * GIB, phase=Phase.DATA, free_bytes=60 * GIB)
    assert classify(pinned)[0] is Outcome.HOST_OUT_OF_MEMORY
    for phase, free in ((Phase.FORWARD, 60 * GIB), (Phase.DATA, GIB), (Phase.DATA, None)):
        other = Evidence(raised=(form,), device="cuda", capacity_bytes=80 * GIB, phase=phase, free_bytes=free)
        assert classify(other)[0] is Outcome.OUT_OF_MEMORY, phase


def test_c22_exhausted_shared_memory_names_the_mount_also_on_the_cpu() -> None:
    form = runtime_error("DataLoader worker (pid 7) is killed by signal: Bus error. ")
    outcome, failure = classify(Evidence(raised=(form,), device="cpu", shared_memory_bytes=64 << 20))
    assert (outcome, failure.cause) == (Outcome.HOST_OUT_OF_MEMORY, Cause.SHARED_MEMORY)
    assert "/dev/shm" in failure.hint
    assert failure.message.splitlines()[-1] == "the shared-memory mount /dev/shm has 64 MiB in all"
    without = classify(Evidence(raised=(form,), device="cpu"))[1]
    assert "in all" not in without.message


def test_c23_a_killed_loader_worker_is_certain_once_the_kernel_counted_a_kill() -> None:
    form = runtime_error("DataLoader worker (pid 7) is killed by signal: Killed. ")
    outcome, failure = classify(Evidence(raised=(form,), device="cpu", host_oom_kills=1))
    assert (outcome, failure.cause, failure.confirm) == CPU_MEMORY


def test_c18_a_lost_context_points_at_the_rows_of_the_batch() -> None:
    form = raised(AS_ACCELERATOR, "CUDA error: device-side assert triggered\nCUDA kernel errors might be …")
    outcome, failure = classify(Evidence(raised=(form,), device="cuda", phase=Phase.FORWARD))
    assert (outcome, failure.cause, failure.confirm) == CONTEXT_LOST
    assert "CUDA_LAUNCH_BLOCKING=1" in failure.hint
    assert "row" in failure.hint
