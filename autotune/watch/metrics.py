"""A snapshot as figures with names, units and labels, by Prometheus's rules. Pure; ``prometheus`` hands them on.

Labels take few values at a time: process ids are those of tenants and trainings that run, and go with them; no command
line is a label.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from autotune.watch.snapshot import Device, Snapshot, Training

_DEVICE = ("device", "uuid")
_TRAINING = ("training", "pid", "rank", "device")


class Kind(StrEnum):
    """How a figure moves."""

    GAUGE = "gauge"
    COUNTER = "counter"
    """Only rises, while its training or search lasts."""


@dataclass(frozen=True, slots=True)
class Metric:
    """What a name means."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str


@dataclass(frozen=True, slots=True)
class Sample:
    """One figure."""

    name: str
    labels: tuple[str, ...]
    """Values, in the order of the metric's labels."""
    value: float


METRICS = (
    Metric("autotune_watch_info", Kind.GAUGE, ("version", "driver"), "1; versions of autotune and the NVIDIA driver."),
    Metric("autotune_watch_nvml_up", Kind.GAUGE, (), "1 if NVML can be asked; 0: only the host is seen."),
    Metric("autotune_watch_look_seconds", Kind.GAUGE, (), "How long the look behind these figures took."),
    Metric("autotune_device_info", Kind.GAUGE, (*_DEVICE, "name"), "1; what the device is."),
    Metric(
        "autotune_device_memory_total_bytes", Kind.GAUGE, _DEVICE, "Memory of the device; of the host or its cgroup."
    ),
    Metric("autotune_device_memory_used_bytes", Kind.GAUGE, _DEVICE, "Memory in use by all processes."),
    Metric(
        "autotune_device_utilization_ratio", Kind.GAUGE, _DEVICE, "Share of the last moments in which a kernel ran."
    ),
    Metric("autotune_device_temperature_celsius", Kind.GAUGE, _DEVICE, "Temperature of the chip."),
    Metric("autotune_device_power_watts", Kind.GAUGE, _DEVICE, "Power drawn."),
    Metric("autotune_device_power_limit_watts", Kind.GAUGE, _DEVICE, "Power that may be drawn."),
    Metric("autotune_device_tenants", Kind.GAUGE, _DEVICE, "Processes that use the device."),
    Metric("autotune_probe_lock_held", Kind.GAUGE, _DEVICE, "1 while a probe of a search runs there."),
    Metric(
        "autotune_tenant_memory_bytes",
        Kind.GAUGE,
        (*_DEVICE, "pid", "user", "name"),
        "Memory of the device that a process uses.",
    ),
    Metric("autotune_trainings", Kind.GAUGE, (), "Guarded trainings that run."),
    Metric("autotune_training_steps_total", Kind.COUNTER, _TRAINING, "Optimizer steps taken."),
    Metric("autotune_training_step_seconds", Kind.GAUGE, _TRAINING, "Time of a step, lately."),
    Metric(
        "autotune_training_memory_used_bytes", Kind.GAUGE, _TRAINING, "Memory in use, of the kind that its limit is on."
    ),
    Metric("autotune_training_memory_peak_bytes", Kind.GAUGE, _TRAINING, "Highest use of it that its guard found."),
    Metric("autotune_training_memory_limit_bytes", Kind.GAUGE, _TRAINING, "Its limit."),
    Metric("autotune_training_memory_headroom_bytes", Kind.GAUGE, _TRAINING, "Limit minus peak; negative above it."),
    Metric("autotune_training_memory_allocated_bytes", Kind.GAUGE, _TRAINING, "Held by its tensors (CUDA)."),
    Metric("autotune_training_memory_reserved_bytes", Kind.GAUGE, _TRAINING, "Held by its allocator (CUDA)."),
    Metric("autotune_training_host_memory_bytes", Kind.GAUGE, _TRAINING, "Resident host memory of its process."),
    Metric("autotune_training_oom_total", Kind.COUNTER, _TRAINING, "Passes that ran out of memory."),
    Metric(
        "autotune_training_micro_batches_split_total",
        Kind.COUNTER,
        _TRAINING,
        "Micro-batches that were trained on in parts instead.",
    ),
    Metric("autotune_training_allocator_retries_total", Kind.COUNTER, _TRAINING, "Retries of its allocator (CUDA)."),
    Metric("autotune_training_leak_alarm", Kind.GAUGE, _TRAINING, "1 once its memory was found to grow step by step."),
    Metric("autotune_training_leak_bytes_per_step", Kind.GAUGE, _TRAINING, "Growth found then; 0 without."),
    Metric("autotune_training_checkpoints_total", Kind.COUNTER, _TRAINING, "Emergency checkpoints written."),
    Metric("autotune_training_updated_timestamp_seconds", Kind.GAUGE, _TRAINING, "When it was last heard of."),
    Metric("autotune_searches_running", Kind.GAUGE, (), "Searches that run, by the ledger."),
    Metric("autotune_search_probes_total", Kind.COUNTER, ("search",), "Probes that a running search has finished."),
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
    told = {
        "memory_total_bytes": device.total_bytes,
        "memory_used_bytes": device.used_bytes,
        "utilization_ratio": device.utilisation,
        "temperature_celsius": device.temperature_celsius,
        "power_watts": device.power_watts,
        "power_limit_watts": device.power_limit_watts,
        "tenants": None if device.tenants is None else len(device.tenants),
    }
    for name, value in told.items():
        if value is not None:
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
        told = {
            "steps_total": status.step,
            "step_seconds": status.step_seconds,
            "memory_used_bytes": status.used_bytes,
            "memory_peak_bytes": status.peak_used_bytes,
            "memory_limit_bytes": status.limit_bytes,
            "memory_headroom_bytes": status.headroom_bytes,
            "memory_allocated_bytes": status.allocated_bytes,
            "memory_reserved_bytes": status.reserved_bytes,
            "host_memory_bytes": status.host_rss_bytes,
            "oom_total": status.out_of_memory,
            "micro_batches_split_total": status.micro_batches_split,
            "allocator_retries_total": status.retries,
            "leak_alarm": float(status.leak_bytes_per_step is not None),
            "leak_bytes_per_step": status.leak_bytes_per_step or 0.0,
            "checkpoints_total": status.checkpoints,
            "updated_timestamp_seconds": status.updated.timestamp(),
        }
        for name, value in told.items():
            if value is not None:
                yield Sample(f"autotune_training_{name}", labels, value)
