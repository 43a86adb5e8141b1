"""Which machines are alike, so that what one measures holds for the other. Pure."""

from dataclasses import asdict, replace

from autotune.model import Machine
from autotune.units import format_bytes

_WORDS = {
    "device": "kind of device",
    "device_name": "device",
    "capacity_bytes": "memory",
    "driver_version": "driver",
    "torch_version": "PyTorch",
    "cuda_version": "CUDA",
    "python_version": "Python",
    "platform": "platform",
    "unified": "unified memory",
}


def kind_of(machine: Machine) -> Machine:
    """The machine without what tells it from another of its kind: equal kinds, comparable measurements."""
    return replace(machine, device_uuid="", device_index=0, peers=())


def difference(machine: Machine, other: Machine) -> str:
    """In what ``other`` is another kind, for people: ``device Tesla T4 and not NVIDIA L4``; empty if it is the same."""
    here, there = asdict(kind_of(machine)), asdict(kind_of(other))
    return ", ".join(
        f"{_WORDS[name]} {_shown(there[name])} and not {_shown(here[name])}"
        for name in _WORDS
        if here[name] != there[name]
    )


def _shown(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return format_bytes(value)
    return str(value) if value != "" else "none"
