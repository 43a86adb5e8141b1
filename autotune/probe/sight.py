"""What PyTorch is and sees here, found out in a process of its own for ``autotune doctor``: torch may crash or hang."""

import json
from collections.abc import Callable, Collection
from dataclasses import asdict
from pathlib import Path

import torch

from autotune.model import Fact, Health, Seen, SeenDevice
from autotune.probe.devices import has_unified_memory
from autotune.probe.facts import fact
from autotune.probe.turns import bare

_SIZE = 64
_SECTION = "PyTorch"


def main(path: str, busy: list[str]) -> None:
    """Write what is seen to a file: standard output may be printed to by others (``sitecustomize``).

    Args:
        path: of the file.
        busy: UUIDs of devices that nothing may run on now.
    """
    Path(path).write_text(json.dumps(asdict(look({bare(uuid) for uuid in busy}))))


def look(busy: Collection[str] = ()) -> Seen:
    """What is seen; devices in ``busy`` are only named, since asking for their memory would start a context there."""
    facts = [
        fact(_SECTION, "built with", _built_with),
        fact(_SECTION, "CUDA devices", _cuda),
        fact(
            _SECTION, "threads", lambda: f"{torch.get_num_threads()} within, {torch.get_num_interop_threads()} between"
        ),
    ]
    devices: tuple[SeenDevice, ...] = ()
    if torch.cuda.is_available():
        devices = tuple(_device(index, busy) for index in range(torch.cuda.device_count()))
        facts += [
            fact(_SECTION, "allocator", lambda: f"{torch.cuda.get_allocator_backend()}; {_allocator_settings()}"),
            fact(_SECTION, "kernels for", lambda: " ".join(torch.cuda.get_arch_list())),
        ]
    cpu_trouble = _trouble_computing("cpu")
    facts.append(
        Fact(
            section=_SECTION,
            name="computes on the CPU",
            value=cpu_trouble or "yes",
            health=Health.TROUBLE if cpu_trouble else Health.OK,
            hint="pip install --force-reinstall torch" if cpu_trouble else "",
        )
    )
    return Seen(
        cpu_computes=not cpu_trouble,
        cuda_version=torch.version.cuda or torch.version.hip or "",
        devices=devices,
        facts=tuple(facts),
    )


def _built_with() -> str:
    parts = [f"CUDA {torch.version.cuda}" if torch.version.cuda else ""]
    parts.append(f"ROCm {torch.version.hip}" if torch.version.hip else "")
    cudnn = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
    parts.append(f"cuDNN {cudnn}" if cudnn else "")
    if torch.distributed.is_available() and torch.distributed.is_nccl_available():
        parts.append("NCCL " + ".".join(map(str, torch.cuda.nccl.version())))  # type: ignore[no-untyped-call]
    return ", ".join(filter(None, parts)) or "the CPU alone"


def _cuda() -> str:
    if torch.cuda.is_available():
        return str(torch.cuda.device_count())
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]  # says why there is none
    except (RuntimeError, AssertionError) as error:  # the second by builds without CUDA
        return f"none: {' '.join(str(error).split())}"[:300]
    return "none"


def _allocator_settings() -> str:
    snapshot = getattr(torch.cuda.memory, "_snapshot", None)
    found = snapshot().get("allocator_settings", {}) if snapshot else {}
    return f"expandable_segments {found.get('expandable_segments', 'not told')}"


def _device(index: int, busy: Collection[str]) -> SeenDevice:
    try:
        properties = torch.cuda.get_device_properties(index)
    except (RuntimeError, AssertionError) as error:
        return _broken(index, error)
    uuid = str(getattr(properties, "uuid", ""))
    described = f"{properties.name}, compute capability {properties.major}.{properties.minor}"
    unified = has_unified_memory(index)
    free = total = None
    trouble, computes = "", None
    if bare(uuid) not in busy:
        trouble = _trouble_computing(f"cuda:{index}")
        computes = not trouble
        if computes:
            free, total = torch.cuda.mem_get_info(index)
    return SeenDevice(
        index=index,
        name=described,
        uuid=uuid,
        capacity_bytes=total or int(properties.total_memory),
        free_bytes=free,
        unified=unified,
        computes=computes,
        trouble=trouble,
    )


def _broken(index: int, error: Exception) -> SeenDevice:
    return SeenDevice(
        index=index,
        name="unknown",
        uuid="",
        capacity_bytes=None,
        free_bytes=None,
        unified=False,
        computes=False,
        trouble=_words(error),
    )


def _trouble_computing(device: str, product: Callable[[str], float] | None = None) -> str:
    """Why a small product does not come out right there; empty if it does."""
    try:
        found = (product or _product)(device)
    except Exception as error:  # noqa: BLE001 - whatever a broken build raises is what is asked for
        return _words(error)
    return "" if found == _SIZE**3 else f"a product of ones came out as {found}, not {_SIZE**3}"


def _product(device: str) -> float:
    ones = torch.ones(_SIZE, _SIZE, device=device)
    return float((ones @ ones).sum().item())


def _words(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
