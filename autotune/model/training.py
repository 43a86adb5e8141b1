"""A guarded training as it tells of itself while it runs."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingStatus:
    """What the guard of one training last published. None = not told by this device, or not known yet."""

    pid: int
    process_started: float
    """Seconds since 1970, as ``psutil.Process.create_time`` says: a process id alone may be another's by now."""
    host: str
    """Within which the process id means something, as ``device_lock.this_host`` says."""
    command: str
    """Printable, at most 200 characters, secrets masked."""
    rank: int | None
    """Of several processes that train together."""
    device: str
    """As PyTorch calls it there: ``cuda:1``, ``cpu``."""
    device_uuid: str
    """As PyTorch writes it; empty = it has none."""
    began: datetime
    updated: datetime
    step: int
    """Optimizer steps that were taken, those before this process included."""
    step_seconds: float | None
    """Mean since the last word, which is a second ago or a step."""
    allocated_bytes: int | None
    """Held by tensors."""
    reserved_bytes: int | None
    """Held by PyTorch's allocator."""
    used_bytes: int
    """Of what the limit is on: the device by all processes (CUDA); the cgroup, the process or the host (CPU)."""
    peak_used_bytes: int
    """The most of it that a look of the guard found."""
    limit_bytes: int
    capacity_bytes: int
    host_rss_bytes: int
    out_of_memory: int
    """Passes that ran out of memory and were made up for by smaller ones."""
    micro_batches_split: int
    retries: int
    """Of the allocator."""
    leak_bytes_per_step: float | None
    """None = no leak was seen."""
    checkpoints: int
    """Written in an emergency."""

    @property
    def headroom_bytes(self) -> int:
        """What was left below the limit at the peak; negative where that was above it."""
        return self.limit_bytes - self.peak_used_bytes
