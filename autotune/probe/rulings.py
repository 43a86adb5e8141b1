"""What each kind of failure means to the search and to the user: tables only, chosen from in ``classify``."""

from dataclasses import dataclass

from autotune.model import Cause, Outcome
from autotune.probe.signatures import Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """What a failure means to the search and to the user."""

    outcome: Outcome
    cause: Cause
    confirm: bool = False
    hint: str = ""


DEVICE_RULING = Ruling(outcome=Outcome.OUT_OF_MEMORY, cause=Cause.DEVICE_MEMORY)
EVALUATION_HINT = "evaluation ran out, not training: give it a smaller batch, torch.no_grad and no kept outputs"
HOST_HINT = "use a smaller batch, fewer loader workers or less prefetching, or give the job more host memory"
MOUNT_HINT = (
    "enlarge the shared-memory mount /dev/shm (docker run --shm-size=8g; `df -h /dev/shm` shows its size) "
    "or use fewer loader workers"
)
CPU_MODEL_HINT = "return the model on the CPU: autotune moves it to the device"
STATUS_RULING = Ruling(
    outcome=Outcome.CRASHED,
    cause=Cause.LIBRARY_STATUS,
    confirm=True,
    hint="if a small batch fails as well, the installation or an index in the data is at fault, not the size",
)
MASKED_RULING = Ruling(
    outcome=Outcome.CRASHED,
    cause=Cause.MASKED_MEMORY,
    confirm=True,
    hint="probably out of memory; if a small batch fails as well, check CUDA_VISIBLE_DEVICES, MIG and container access",
)
COMPILER_RULING = Ruling(
    outcome=Outcome.UNSUPPORTED,
    cause=Cause.NOT_SUPPORTED,
    hint="go on without torch.compile (--forbid compile), or give it what it lacks: a C++ compiler, and Triton for CUDA",
)
SETTINGS_HINT = "leave this setting as it was: it cannot be applied to this workload"
RULINGS: dict[Kind, Ruling] = {
    Kind.POISON: Ruling(
        outcome=Outcome.CRASHED,
        cause=Cause.CONTEXT_LOST,
        confirm=True,
        hint="look for a label or index outside its range in the rows of this batch; "
        "CUDA_LAUNCH_BLOCKING=1 shows the call that failed",
    ),
    Kind.KERNEL_RESOURCES: Ruling(
        outcome=Outcome.WORKLOAD_ERROR,
        cause=Cause.USER_CODE,
        hint="give the kernel smaller tiles or fewer stages: it ran out of on-chip resources, not of device memory",
    ),
    Kind.ENVIRONMENT: Ruling(
        outcome=Outcome.UNSUPPORTED,
        cause=Cause.ENVIRONMENT,
        hint="check driver, device and PyTorch build: nvidia-smi, python -m torch.utils.collect_env",
    ),
    Kind.NOT_SUPPORTED: Ruling(
        outcome=Outcome.UNSUPPORTED,
        cause=Cause.NOT_SUPPORTED,
        hint="choose another precision or setting: this one does not exist for the operation or the device",
    ),
    Kind.NOT_COMPILED: COMPILER_RULING,
    Kind.LIMIT: Ruling(
        outcome=Outcome.SIZE_LIMIT,
        cause=Cause.SIZE_LIMIT,
        hint="use a smaller batch: more memory would not lift this limit",
    ),
    Kind.SHARED: Ruling(outcome=Outcome.HOST_OUT_OF_MEMORY, cause=Cause.SHARED_MEMORY, hint=MOUNT_HINT),
    Kind.LOADER_CRASHED: Ruling(
        outcome=Outcome.CRASHED,
        cause=Cause.SIGNAL,
        hint="run the data loader with num_workers=0 to see what its worker died of",
    ),
    Kind.STATUS: STATUS_RULING,
    Kind.MASKED: MASKED_RULING,
}
"""Kinds whose meaning does not depend on the state of memory; ``classify`` works out the others."""
