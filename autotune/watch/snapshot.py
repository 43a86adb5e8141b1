"""What one look at a machine saw. Sizes in bytes; None = not told."""

from dataclasses import dataclass
from datetime import datetime

from autotune.model import TrainingStatus
from autotune.probe.device_lock import Holder

HOST = "host"
"""Name of the host's memory among the devices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """A process that uses a device. Ids are those of the host: in a container they may be nobody's."""

    pid: int
    user: str
    """Empty where the process cannot be seen from here, as the next two."""
    name: str
    """Of the program: at most 15 characters on Linux."""
    command: str
    """Printable, at most 200 characters, secrets masked."""
    used_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A card, an instance of a divided one, or the host."""

    device: str
    """``gpu0`` as NVML and nvidia-smi number them, ``gpu0.1`` the second instance of that, or ``host``."""
    uuid: str
    """``GPU-…``, ``MIG-…``; empty for the host."""
    name: str
    total_bytes: int | None
    used_bytes: int | None
    """By all processes. Of the host: of its memory, or of the cgroup's where that has less left."""
    utilisation: float | None = None
    """0 to 1."""
    temperature_celsius: float | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    tenants: tuple[Tenant, ...] | None = None
    """Of cards only."""
    probed_by: Holder | None = None
    """Whose probe runs there; None = nobody's that says so."""
    lock_told: bool = True
    """False = whether a probe runs cannot be told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """A guarded training that runs."""

    id: str
    """Tells apart what one process trains; of no other meaning."""
    script: str
    """First word of the command, at most 40 characters."""
    user: str
    device: str
    """As in ``Device``; as PyTorch calls it, where no card of that UUID was seen."""
    status: TrainingStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """A search that runs, by the ledger."""

    id: str
    workload: str
    device_name: str
    owner: str
    """``process 4711 on gpu-box``."""
    created: datetime
    probes: int
    predicted: bool = False
    """Whether one process stands in for ranks that do not run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All of it."""

    taken: datetime
    host: str
    version: str
    """Of autotune."""
    driver: str
    """Version of the NVIDIA driver; empty = NVML cannot be asked, and a note says why."""
    devices: tuple[Device, ...]
    trainings: tuple[Training, ...]
    searches: tuple[Search, ...]
    notes: tuple[str, ...]
    """What could not be seen, and why."""
    seconds: float
    """That the look took."""
