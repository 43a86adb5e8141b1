"""A snapshot as figures with names, units and labels, by Prometheus's rules. Pure; ``prometheus`` hands them on.

Labels take few values at a time: process ids are those of tenants and trainings that run, and go with them; no command
line is a label.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from autotune.model import TrainingStatus
from autotune.watch.snapshot import Device, Snapshot, Training

_DEVICE = ("device", "uuid")
_TRAINING = ("training", "pid", "rank", "device")


@dataclass(frozen=True, slots=True)
class Metric:
    """What a name means."""

    name: str
    labels: tuple[str, ...]
    help: str

    @property
    def kind(self) -> str:
        """``counter``, which only rises while its training or search lasts, or ``gauge``."""
        return "counter" if self.name.endswith("_total") else "gauge"


@dataclass(frozen=True, slots=True)
class Sample:
    """One figure."""

    name: str
    labels: tuple[str, ...]
    """Values, in the order of the metric's labels."""
    value: float


_OF_DEVICE: tuple[tuple[str, Callable[[Device], float | None], str], ...] = (
    ("memory_total_bytes", lambda one: one.total_bytes, "Memory of the device; of the host or its cgroup."),
    ("memory_used_bytes", lambda one: one.used_bytes, "Memory in use by all processes."),
    ("utilization_ratio", lambda one: one.utilisation, "Share of the last moments in which a kernel ran."),
    ("temperature_celsius", lambda one: one.temperature_celsius, "Temperature of the chip."),
    ("power_watts", lambda one: one.power_watts, "Power drawn."),
    ("power_limit_watts", lambda one: one.power_limit_watts, "Power that may be drawn."),
    ("tenants", lambda one: None if one.tenants is None else len(one.tenants), "Processes that use the device."),
)
"""End of the name, value (None = not told), help; as the next."""
_OF_TRAINING: tuple[tuple[str, Callable[[TrainingStatus], float | None], str], ...] = (
    ("steps_total", lambda one: one.step, "Optimizer steps taken."),
    ("step_seconds", lambda one: one.step_seconds, "Time of a step, lately."),
    ("memory_used_bytes", lambda one: one.used_bytes, "Memory in use, of the kind that its limit is on."),
    ("memory_peak_bytes", lambda one: one.peak_used_bytes, "Highest use of it that its guard found."),
    ("memory_limit_bytes", lambda one: one.limit_bytes, "Its limit."),
    ("memory_headroom_bytes", lambda one: one.headroom_bytes, "Limit minus peak; negative above it."),
    ("memory_allocated_bytes", lambda one: one.allocated_bytes, "Held by its tensors (CUDA)."),
    ("memory_reserved_bytes", lambda one: one.reserved_bytes, "Held by its allocator (CUDA)."),
    ("host_memory_bytes", lambda one: one.host_rss_bytes, "Resident host memory of its process."),
    ("oom_total", lambda one: one.out_of_memory, "Passes that ran out of memory."),
    (
        "micro_batches_split_total",
        lambda one: one.micro_batches_split,
        "Micro-batches that were trained on in parts instead.",
    ),
    ("allocator_retries_total", lambda one: one.retries, "Retries of its allocator (CUDA)."),
    (
        "leak_alarm",
        lambda one: one.leak_bytes_per_step is not None,
        "1 once its memory was found to grow step by step.",
    ),
    ("leak_bytes_per_step", lambda one: one.leak_bytes_per_step or 0.0, "Growth found then; 0 without."),
    ("checkpoints_total", lambda one: one.checkpoints, "Emergency checkpoints written."),
    ("updated_timestamp_seconds", lambda one: one.updated.timestamp(), "When it was last heard of."),
)
METRICS = (
    Metric("autotune_watch_info", ("version", "driver"), "1; versions of autotune and the NVIDIA driver."),
    Metric("autotune_watch_nvml_up", (), "1 if NVML can be asked; 0: only the host is seen."),
    Metric("autotune_watch_look_seconds", (), "How long the look behind these figures took."),
    Metric("autotune_device_info", (*_DEVICE, "name"), "1; what the device is."),
    *(Metric(f"autotune_device_{name}", _DEVICE, words) for name, _, words in _OF_DEVICE),
    Metric("autotune_probe_lock_held", _DEVICE, "1 while a probe of a search runs there."),
    Metric(
        "autotune_tenant_memory_bytes", (*_DEVICE, "pid", "user", "name"), "Memory of the device that a process uses."
    ),
    Metric("autotune_trainings", (), "Guarded trainings that run."),
    *(Metric(f"autotune_training_{name}", _TRAINING, words) for name, _, words in _OF_TRAINING),
    Metric("autotune_searches_running", (), "Searches that run, by the ledger."),
    Metric("autotune_search_probes_total", ("search",), "Probes that a running search has finished."),
)
"""Every one, in the order they are shown."""


def samples(snapshot: Snapshot) -> Iterator[Sample]:
    """All figures that were told; one of no device, training or search is left out, and so is what was not told."""
    yield Sample("autotune_watch_info", (snapshot.version, snapshot.driver), 1)
    yield Sample("autotune_watch_nvml_up", (), float(bool(snapshot.driver)))
    yield Sample("autotune_watch_look_seconds", (), snapshot.seconds)
    for device in snapshot.devices:
        yield from _device(device)
    yield Sample("autotune_trainings", (), len(snapshot.trainings))
    yield from _trainings(snapshot.trainings)
    yield Sample("autotune_searches_running", (), len(snapshot.searches))
    for search in snapshot.searches:
        yield Sample("autotune_search_probes_total", (search.id,), search.probes)


def _device(device: Device) -> Iterator[Sample]:
    labels = device.device, device.uuid
    yield Sample("autotune_device_info", (*labels, device.name), 1)
    for name, figure, _ in _OF_DEVICE:
        if (value := figure(device)) is not None:
            yield Sample(f"autotune_device_{name}", labels, value)
    if device.lock_told:
        yield Sample("autotune_probe_lock_held", labels, float(device.probed_by is not None))
    for tenant in device.tenants or ():
        if tenant.used_bytes is not None:
            who = str(tenant.pid), tenant.user, tenant.name
            yield Sample("autotune_tenant_memory_bytes", (*labels, *who), tenant.used_bytes)


def _trainings(trainings: tuple[Training, ...]) -> Iterator[Sample]:
    seen: Counter[tuple[str, ...]] = Counter()
    for training in trainings:
        status = training.status
        rank = "" if status.rank is None else str(status.rank)
        who = training.script, str(status.pid), rank, training.device
        seen[who] += 1
        labels = who if seen[who] == 1 else (f"{who[0]}#{seen[who]}", *who[1:])
        for name, figure, _ in _OF_TRAINING:
            if (value := figure(status)) is not None:
                yield Sample(f"autotune_training_{name}", labels, float(value))
