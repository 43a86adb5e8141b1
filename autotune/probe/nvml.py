"""Device-wide memory by NVML, matched by UUID because NVML ignores CUDA_VISIBLE_DEVICES. Never needed: None = unknown."""

import contextlib
import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from autotune.probe.visible import Card
from autotune.units import GIB, format_bytes

_SAME_SHARE, _SAME_BYTES = 0.05, GIB // 2
"""NVML counts what the driver keeps for itself as part of the device, torch does not: 0.3 to 0.5 GiB."""

_MOST_MILLIWATTS, _MOST_CELSIUS = 100_000_000.0, 1_000.0
"""No card draws or bears as much: such a figure is none."""


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
    except getattr(_pynvml, "NVMLError", ()) as error:
        raise _Unknown(str(error)) from error
    except (AttributeError, TypeError, ValueError, OSError) as error:  # another or older library of that name
        raise _Unknown(f"nvidia-ml-py and this driver do not go together: {error}") from error


def used_bytes(device_uuid: str) -> int | None:
    """Memory in use on the device by all processes, driver reservations left out; None where NVML cannot tell.

    Args:
        device_uuid: as torch reports it, with or without the ``GPU-`` or ``MIG-`` that NVML puts before it.
    """
    try:
        return _memory(device_uuid)[0]
    except _Unknown:  # torch's own figures are used instead, which ``trouble`` tells the user
        return None


def _memory(device_uuid: str) -> tuple[int, int]:
    """Bytes used and there, of one device.

    Raises:
        _Unknown: NVML does not know it, or says what cannot be.
    """
    if not device_uuid:
        raise _Unknown("torch does not say which device it is")
    with _library() as nvml:
        handle = _handle(nvml, device_uuid)
        # version 2 of the call leaves out what the driver keeps for itself, as torch.cuda.mem_get_info does
        memory = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
        used, total = int(memory.used), int(memory.total)
    if not 0 <= used <= total or total == 0:
        raise _Unknown(f"it says that {used} of {total} bytes are in use")
    return used, total


def _handle(nvml: ModuleType, device_uuid: str) -> Any:
    """By UUID. torch leaves out what tells a whole card from an instance of a divided one."""
    if device_uuid.startswith(("GPU-", "MIG-")):
        return nvml.nvmlDeviceGetHandleByUUID(device_uuid)
    try:
        return nvml.nvmlDeviceGetHandleByUUID(f"GPU-{device_uuid}")
    except nvml.NVMLError:
        with contextlib.suppress(nvml.NVMLError):  # what was said of the usual form tells more
            return nvml.nvmlDeviceGetHandleByUUID(f"MIG-{device_uuid}")
        raise


def trouble(device_uuid: str, capacity_bytes: int | None = None) -> str:
    """Why NVML cannot tell the memory in use on the device; empty where it can.

    Args:
        device_uuid: as for ``used_bytes``.
        capacity_bytes: what torch says is there; figures of a card of quite another size are not this device's.
    """
    try:
        _, total = _memory(device_uuid)
    except _Unknown as reason:
        return str(reason) or "it gives no reason"
    if capacity_bytes is not None and abs(total - capacity_bytes) > _SAME_SHARE * capacity_bytes + _SAME_BYTES:
        return f"it speaks of a device of {format_bytes(total)}, torch of one of {format_bytes(capacity_bytes)}"
    return ""


def missing() -> str:
    """Why NVML cannot be asked at all; empty where it can."""
    try:
        with _library():
            return ""
    except _Unknown as reason:
        return str(reason) or "it gives no reason"


def capacity_bytes(device_uuid: str) -> int | None:
    """Memory of the device by NVML, what the driver keeps for itself included; None where it cannot tell."""
    try:
        return _memory(device_uuid)[1]
    except _Unknown:  # as above
        return None


def cards() -> tuple[Card, ...]:
    """All devices of the host, in the order of their buses; empty where NVML cannot tell."""
    try:
        with _library() as nvml:
            handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
            return tuple(
                Card(
                    uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
                    name=_text(nvml.nvmlDeviceGetName(handle)),
                    slices=_slices(nvml, handle),
                )
                for handle in handles
            )
    except _Unknown:  # as above
        return ()


def _slices(nvml: ModuleType, handle: Any) -> tuple[str, ...] | None:
    try:
        divided = nvml.nvmlDeviceGetMigMode(handle)[0]
    except nvml.NVMLError:  # most cards cannot be divided
        return None
    if not divided:
        return None
    found = []
    for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        with contextlib.suppress(nvml.NVMLError):  # fewer were made than could be
            found.append(_text(nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index))))
    return tuple(found)


def tenants(device_uuid: str) -> tuple[tuple[int, int | None], ...] | None:
    """Process id and bytes (None where the driver does not say) of who uses the device; None where NVML cannot tell.

    Ids are those of the host: in a container they mean nothing.
    """
    try:
        with _library() as nvml:
            handle = _handle(nvml, device_uuid)
            running = [
                *nvml.nvmlDeviceGetComputeRunningProcesses(handle),
                *nvml.nvmlDeviceGetGraphicsRunningProcesses(handle),
            ]
            return tuple({int(one.pid): (int(one.pid), _bytes(one.usedGpuMemory)) for one in running}.values())
    except _Unknown:  # as above
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What a device does at one moment. None = it does not tell: instances of divided cards tell nothing of this."""

    utilisation: float | None = None
    """Share of the last moments in which something ran, 0 to 1."""
    temperature_celsius: float | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None


def load(device_uuid: str) -> Load:
    """Utilisation, temperature and power, each where the device tells it."""
    try:
        with _library() as nvml:
            handle = _handle(nvml, device_uuid)

            def told(look: Callable[[], float], largest: float) -> float | None:
                try:
                    value = float(look())
                except (nvml.NVMLError, AttributeError, TypeError, ValueError):  # not by this device, or this library
                    return None
                return value if 0 <= value <= largest else None

            percent = told(lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu, 100)
            milliwatts = told(lambda: nvml.nvmlDeviceGetPowerUsage(handle), _MOST_MILLIWATTS)
            most = told(lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle), _MOST_MILLIWATTS)
            sensor = getattr(nvml, "NVML_TEMPERATURE_GPU", 0)
            return Load(
                utilisation=None if percent is None else percent / 100,
                temperature_celsius=told(lambda: nvml.nvmlDeviceGetTemperature(handle, sensor), _MOST_CELSIUS),
                power_watts=None if milliwatts is None else milliwatts / 1000,
                power_limit_watts=None if most is None else most / 1000,
            )
    except _Unknown:  # as above
        return Load()


@contextmanager
def kept_open() -> Iterator[None]:
    """Within the block the library is started once, not for each question. Where it cannot be, questions say so."""
    library = contextlib.ExitStack()
    with contextlib.suppress(_Unknown):
        library.enter_context(_library())
    try:
        yield
    finally:
        with contextlib.suppress(_Unknown):
            library.close()  # not told of what is raised in the block, which would pass for trouble of its own


def _bytes(told: int | None) -> int | None:
    return None if told is None else int(told)


def _text(told: str | bytes) -> str:
    return told.decode(errors="replace") if isinstance(told, bytes) else str(told)


def driver_version() -> str:
    """The NVIDIA driver's version; empty where NVML cannot tell."""
    try:
        with _library() as nvml:
            return _text(nvml.nvmlSystemGetDriverVersion())
    except _Unknown:  # as above
        return ""
