"""Where and when something was measured, for whoever reads the table."""

import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version

from autotune.model import Machine
from benchmarks.common.documents import Run

_PACKAGES = (
    "torch",
    "triton",
    "lightning",
    "accelerate",
    "transformers",
    "torchvision",
    "timm",
    "pytorch-autotune",
)


def note(command: str, machine: Machine) -> Run:
    """One call of the command on this machine."""
    found = {name: _version(name) for name in _PACKAGES}
    return Run(
        command=command,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        device=machine.device_name,
        driver=machine.driver_version,
        capacity_bytes=machine.capacity_bytes,
        cuda=machine.cuda_version,
        python=platform.python_version(),
        versions={name: number for name, number in found.items() if number},
    )


def _version(package: str) -> str:
    """Installed version; empty if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
