"""The device that is asked for, and the machine around it as far as it decides results."""

import os
import platform
from dataclasses import replace

import torch

from autotune.errors import EnvironmentTrouble
from autotune.model import Machine
from autotune.probe import nvml


def look_at_device(wanted: str) -> Machine:
    """The machine as far as it decides results.

    Args:
        wanted: ``auto``, or a torch device such as ``cpu``, ``cuda``, ``cuda:1``.

    Raises:
        EnvironmentTrouble: no such device here, or a kind autotune cannot measure.
    """
    if wanted == "auto":
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(wanted)
    except RuntimeError as error:
        raise EnvironmentTrouble(f"{wanted!r} is no device", hint="use --device cpu or --device cuda:0") from error
    if device.type == "cuda":
        return _cuda(device)
    if device.type == "cpu":
        return _cpu()
    raise EnvironmentTrouble(f"device {device.type!r} cannot be measured yet", hint="use --device cuda or --device cpu")


def look_at_devices(wanted: str, ranks: int) -> Machine:
    """The same with the devices of all ranks, which are the first so many of their kind.

    Raises:
        EnvironmentTrouble: as above, or there are fewer devices, or of several kinds.
    """
    machine = look_at_device(wanted)
    if ranks == 1 or machine.device == "cpu":
        return machine
    there = torch.cuda.device_count()
    if there < ranks:
        raise EnvironmentTrouble(
            f"--ranks {ranks} takes a CUDA device for each, and PyTorch sees {there}",
            hint=f"give --ranks {there}, or look at CUDA_VISIBLE_DEVICES; --device cpu needs none",
        )
    peers = [look_at_device(f"cuda:{index}") for index in range(1, ranks)]
    names = {machine.device_name, *(peer.device_name for peer in peers)}
    if len(names) > 1:
        raise EnvironmentTrouble(
            f"the first {ranks} CUDA devices are of several kinds: {', '.join(sorted(names))}",
            hint="choose devices of one kind by CUDA_VISIBLE_DEVICES: every rank has the same batch",
        )
    return replace(
        machine,
        capacity_bytes=min(machine.capacity_bytes, *(peer.capacity_bytes for peer in peers)),
        peers=tuple(peer.device_uuid for peer in peers),
    )


def _cuda(device: torch.device) -> Machine:
    if not torch.cuda.is_available():
        raise EnvironmentTrouble(
            f"--device {device} was asked for, and PyTorch {torch.__version__} sees no CUDA device",
            hint="look at `nvidia-smi` and CUDA_VISIBLE_DEVICES, or use --device cpu",
        )
    index = torch.cuda.current_device() if device.index is None else device.index
    if index >= torch.cuda.device_count():
        raise EnvironmentTrouble(
            f"--device cuda:{index} was asked for, and there are {torch.cuda.device_count()} CUDA devices",
            hint=f"use --device cuda:{torch.cuda.device_count() - 1} or lower",
        )
    properties = torch.cuda.get_device_properties(index)
    return Machine(
        device="cuda",
        device_name=properties.name,
        device_uuid=str(getattr(properties, "uuid", "")),
        device_index=index,
        capacity_bytes=torch.cuda.mem_get_info(index)[1],
        driver_version=nvml.driver_version(),
        torch_version=torch.__version__,
        cuda_version=torch.version.cuda or torch.version.hip or "",
        python_version=platform.python_version(),
        platform=platform.platform(),
        unified=has_unified_memory(index),
    )


def has_unified_memory(device: torch.device | int) -> bool:
    """Whether the device's memory is the host's."""
    return bool(getattr(torch.cuda.get_device_properties(device), "is_integrated", False))


def _cpu() -> Machine:
    return Machine(
        device="cpu",
        device_name=f"{_cpu_name()}, {torch.get_num_threads()} threads, {platform.node()}",
        device_uuid="",
        device_index=0,
        capacity_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        driver_version="",
        torch_version=torch.__version__,
        cuda_version="",
        python_version=platform.python_version(),
        platform=platform.platform(),
    )


def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    except OSError:  # not Linux
        names = []
    return names[0] if names else platform.machine()
