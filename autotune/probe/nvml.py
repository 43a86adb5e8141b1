"""Device-wide memory by NVML, matched by UUID because NVML ignores CUDA_VISIBLE_DEVICES. Never needed: None = unknown."""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType


def _load() -> ModuleType | None:
    try:
        return importlib.import_module("pynvml")
    except ImportError:  # left out of an image on purpose, perhaps: torch's own figures are used instead
        return None


_pynvml = _load()


class _Unknown(Exception):
    """Raised inside: library, driver, permission or support is missing; the message says which."""


@contextmanager
def _library() -> Iterator[ModuleType]:
    """The library, ready to be asked.

    Raises:
        _Unknown: it cannot be, or did not answer what was asked inside.
    """
    if _pynvml is None:
        raise _Unknown("nvidia-ml-py is not installed")
    try:
        _pynvml.nvmlInit()
        try:
            yield _pynvml
        finally:
            _pynvml.nvmlShutdown()
    except _pynvml.NVMLError as error:
        raise _Unknown(str(error)) from error


def used_bytes(device_uuid: str) -> int | None:
    """Memory in use on the device by all processes, driver reservations left out; None where NVML cannot tell.

    Args:
        device_uuid: as torch reports it, with or without the ``GPU-`` prefix; MIG UUIDs with their own prefix.
    """
    try:
        return _used_bytes(device_uuid)
    except _Unknown:  # torch's own figures are used instead, which ``trouble`` tells the user
        return None


def _used_bytes(device_uuid: str) -> int:
    if not device_uuid:
        raise _Unknown("torch does not say which device it is")
    name = device_uuid if device_uuid.startswith(("GPU-", "MIG-")) else f"GPU-{device_uuid}"
    with _library() as nvml:
        handle = nvml.nvmlDeviceGetHandleByUUID(name)
        # version 2 of the call leaves out what the driver keeps for itself, as torch.cuda.mem_get_info does
        return int(nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2).used)


def trouble(device_uuid: str) -> str:
    """Why NVML cannot tell the memory in use on the device; empty where it can."""
    try:
        _used_bytes(device_uuid)
    except _Unknown as reason:
        return str(reason)
    return ""


def driver_version() -> str:
    """The NVIDIA driver's version; empty where NVML cannot tell."""
    try:
        with _library() as nvml:
            version = nvml.nvmlSystemGetDriverVersion()
    except _Unknown:  # as above
        return ""
    return version.decode() if isinstance(version, bytes) else str(version)
