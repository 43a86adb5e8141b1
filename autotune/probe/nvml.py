"""Device-wide memory by NVML, matched by UUID because NVML ignores CUDA_VISIBLE_DEVICES. Never needed: None = unknown."""

import pynvml


def used_bytes(device_uuid: str) -> int | None:
    """Memory in use on the device by all processes, driver reservations left out; None where NVML cannot tell.

    Args:
        device_uuid: as torch reports it, with or without the ``GPU-`` prefix; MIG UUIDs with their own prefix.
    """
    if not device_uuid:
        return None
    name = device_uuid if device_uuid.startswith(("GPU-", "MIG-")) else f"GPU-{device_uuid}"
    try:
        pynvml.nvmlInit()
        try:
            handle = pynvml.nvmlDeviceGetHandleByUUID(name)
            # version 2 of the call leaves out what the driver keeps for itself, as torch.cuda.mem_get_info does
            return int(pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2).used)
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError:  # library, driver, permission or support missing: torch's own figures are used instead
        return None


def driver_version() -> str:
    """The NVIDIA driver's version; empty where NVML cannot tell."""
    try:
        pynvml.nvmlInit()
        try:
            version = pynvml.nvmlSystemGetDriverVersion()
            return version.decode() if isinstance(version, bytes) else str(version)
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError:  # as above
        return ""
