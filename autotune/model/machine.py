"""The device and what of it the job may use."""

import hashlib
import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The fingerprint under which results are valid."""

    device: str
    """torch device type: ``cpu``, ``cuda``."""
    device_name: str
    device_uuid: str
    """Empty where the device has none."""
    device_index: int
    capacity_bytes: int
    """Physical memory of the device."""
    driver_version: str
    torch_version: str
    cuda_version: str
    python_version: str
    platform: str
    unified: bool = False
    """The device's memory is the host's (integrated GPUs such as GB10 and Jetson): what the host takes is missing on the
    device, and the other way round."""
    peers: tuple[str, ...] = ()
    """UUIDs of the devices of the other ranks, where several train together on devices of one kind; the capacity is then
    that of the smallest."""

    @property
    def torch_device(self) -> str:
        """As PyTorch names it: ``cpu``, ``cuda:1``."""
        return "cpu" if self.device == "cpu" else f"{self.device}:{self.device_index}"

    @property
    def fingerprint(self) -> str:
        """Hash of everything that makes measurements comparable. The index is not part of it, and of what kind the memory
        is the device's name says."""
        facts = asdict(self)
        del facts["device_index"], facts["unified"]
        if not self.peers:
            del facts["peers"]
        return digest(facts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Device-wide bytes the job may use, and how that number came about."""

    limit_bytes: int
    """The device-wide peak of the job must stay at or under this."""
    source: str
    """What set it: ``--memory-limit``, ``device``, ``cgroup``, ``rlimit``, ``available memory``."""
    capacity_bytes: int
    others_bytes: int
    """Held by other processes when the search began; 0 under ``--memory-limit``."""
    headroom_bytes: int
    """Left free on purpose; 0 under ``--memory-limit``."""
    caller_bytes: int = 0
    """CPU, ``find_max_batch``: what the calling process holds beyond a fresh one; taken off the limit, since training
    goes on there."""


def short_digest(facts: object) -> str:
    """The first 16 digits of ``digest``: enough to see that something changed, where nothing is decided by it alone."""
    return digest(facts)[:16]


def digest(facts: object) -> str:
    """SHA-256 (hex) of a JSON-able value in canonical form."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
