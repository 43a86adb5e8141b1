"""Cards and the host: how full, how busy, and with whom. NVML tells of cards; without it only the host is seen."""

import contextlib
import platform
from collections.abc import Iterator

import psutil

from autotune.masked import without_secrets
from autotune.probe import nvml
from autotune.probe.device_lock import DeviceLock, Holder, printable
from autotune.probe.host import host_limit
from autotune.probe.turns import bare, host_key
from autotune.probe.visible import Card
from autotune.watch.snapshot import HOST, Device, Tenant

_COMMAND_LIMIT = 200


def cards() -> tuple[Device, ...]:
    """Every card of the host, instances in place of those that are divided. Empty where NVML cannot be asked."""
    return tuple(
        _card(card, device, uuid)
        for number, card in enumerate(nvml.cards())
        for device, uuid in _parts(card, f"gpu{number}")
    )


def host() -> Device:
    """The host's memory, or that of this process's cgroup, whichever has less left."""
    limit = host_limit(rlimits=False)
    key = host_key()
    holder, told = (None, True) if key is None else _lock(key)
    return Device(
        device=HOST,
        uuid="",
        name=f"memory of {limit.source} {limit.shared_by}" if limit.source == "cgroup" else "memory",
        total_bytes=limit.total_bytes,
        used_bytes=limit.total_bytes - limit.free_bytes,
        probed_by=holder,
        lock_told=told,
    )


def host_name() -> str:
    """Of this machine, printable."""
    return printable(platform.node())[:_COMMAND_LIMIT]


def _parts(card: Card, device: str) -> Iterator[tuple[str, str]]:
    if card.slices is None:
        yield device, card.uuid
    for number, uuid in enumerate(card.slices or ()):
        yield f"{device}.{number}", uuid


def _card(card: Card, device: str, uuid: str) -> Device:
    load, holder = nvml.load(uuid), _lock(bare(uuid))
    running = nvml.tenants(uuid)
    return Device(
        device=device,
        uuid=uuid,
        name=card.name if card.slices is None else f"{card.name}, an instance",
        total_bytes=nvml.capacity_bytes(uuid),
        used_bytes=nvml.used_bytes(uuid),
        utilisation=load.utilisation,
        temperature_celsius=load.temperature_celsius,
        power_watts=load.power_watts,
        power_limit_watts=load.power_limit_watts,
        tenants=None if running is None else tuple(_tenant(pid, used) for pid, used in sorted(running)),
        probed_by=holder[0],
        lock_told=holder[1],
    )


def _lock(key: str) -> tuple[Holder | None, bool]:
    try:
        return DeviceLock(key).held_by(), True
    except OSError:  # no locks here: the snapshot says so
        return None, False


def _tenant(pid: int, used_bytes: int | None) -> Tenant:
    user = name = command = ""
    with contextlib.suppress(psutil.Error, KeyError, ValueError, OverflowError):  # ended, hidden, of another namespace
        process = psutil.Process(pid)
        name = process.name()
        command = " ".join(process.cmdline())
        user = process.username()
    return Tenant(
        pid=pid,
        user=printable(user)[:64],
        name=printable(name)[:15],
        command=printable(without_secrets(command))[:_COMMAND_LIMIT],
        used_bytes=used_bytes,
    )
