"""A snapshot as lines of plain text, for a terminal of any width. Pure; ``cli`` colours and cuts them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from autotune.model import Health
from autotune.report.columns import NOTHING, align
from autotune.units import counted, format_bytes, format_seconds
from autotune.watch.snapshot import HOST, Device, Search, Snapshot, Training

_BAR = 20
_NEARLY_FULL = 0.95
_HOT_CELSIUS = 85.0
_SILENT_S = 60.0
"""A training that says nothing for so long, and for ten of its steps, may hang."""
_UUID_LENGTH = 12
_COMMAND_LENGTH = 60


@dataclass(frozen=True, slots=True)
class Line:
    """One line, and how it is."""

    text: str
    health: Health = Health.OK
    heading: bool = False


def lines(snapshot: Snapshot) -> list[Line]:
    """Everything: devices, tenants, trainings, searches, notes; sections without anything are left out."""
    driver = f"driver {snapshot.driver}" if snapshot.driver else "no NVML"
    found = [Line(f"{snapshot.host}  {snapshot.taken:%Y-%m-%d %H:%M:%S} UTC  {driver}", heading=True)]
    found += _devices(snapshot.devices)
    found += _tenants(snapshot.devices)
    found += _trainings(snapshot.trainings, snapshot.taken)
    found += _probes(snapshot.devices)
    found += _searches(snapshot.searches)
    if snapshot.notes:
        found += [Line(""), *(Line(f"- {note}", Health.NOTE) for note in snapshot.notes)]
    return found


def _devices(devices: tuple[Device, ...]) -> Iterator[Line]:
    rows = [("device", "name", "UUID", "memory", "used", "total", "busy", "temp", "power")]
    for one in devices:
        share = None if not one.total_bytes or one.used_bytes is None else one.used_bytes / one.total_bytes
        rows.append(
            (
                one.device,
                one.name,
                one.uuid[:_UUID_LENGTH] or NOTHING,
                _bar(share),
                format_bytes(one.used_bytes),
                format_bytes(one.total_bytes),
                NOTHING if one.utilisation is None else f"{one.utilisation:.0%}",
                NOTHING if one.temperature_celsius is None else f"{one.temperature_celsius:.0f} C",
                _power(one),
            )
        )
    heading, *texts = align(rows, right=(4, 5, 6, 7, 8))
    yield Line(heading, heading=True)
    for text, one in zip(texts, devices, strict=True):
        full = bool(one.total_bytes) and (one.used_bytes or 0) > _NEARLY_FULL * (one.total_bytes or 1)
        yield Line(text, Health.NOTE if full or (one.temperature_celsius or 0) > _HOT_CELSIUS else Health.OK)


def _bar(share: float | None) -> str:
    if share is None:
        return f"[{'?' * _BAR}]"
    filled = round(min(1.0, max(0.0, share)) * _BAR)
    return f"[{'#' * filled}{'.' * (_BAR - filled)}] {share:4.0%}"


def _power(one: Device) -> str:
    if one.power_watts is None:
        return NOTHING
    most = "" if one.power_limit_watts is None else f" / {one.power_limit_watts:.0f}"
    return f"{one.power_watts:.0f}{most} W"


def _tenants(devices: tuple[Device, ...]) -> Iterator[Line]:
    rows = [
        (
            one.device,
            str(who.pid),
            who.user or NOTHING,
            format_bytes(who.used_bytes),
            _command(who.command or who.name),
        )
        for one in devices
        for who in one.tenants or ()
    ]
    return _table("tenants", ("device", "pid", "user", "memory", "command"), rows, right=(1, 3))


def _trainings(trainings: tuple[Training, ...], now: datetime) -> Iterator[Line]:
    rows, healths = [], []
    for one in trainings:
        status = one.status
        silent = (now - status.updated).total_seconds()
        alarms = _alarms(one, silent)
        leaks = status.leak_bytes_per_step is not None
        healths.append(Health.TROUBLE if leaks else Health.NOTE if alarms else Health.OK)
        rows.append(
            (
                one.device,
                str(status.pid),
                one.user,
                one.script + ("" if status.rank is None else f" rank {status.rank}"),
                f"{status.step:,}",
                format_seconds(status.step_seconds),
                format_bytes(status.peak_used_bytes),
                format_bytes(status.headroom_bytes),
                str(status.out_of_memory),
                "; ".join(alarms) or NOTHING,
            )
        )
    heads = ("device", "pid", "user", "training", "step", "a step", "peak", "headroom", "OOMs absorbed", "mind")
    return _table("guarded trainings", heads, rows, right=(1, 4, 5, 6, 7, 8), healths=healths)


def _alarms(one: Training, silent_s: float) -> list[str]:
    status, found = one.status, []
    if status.leak_bytes_per_step is not None:
        found.append(f"LEAK {format_bytes(round(status.leak_bytes_per_step))} a step")
    if status.headroom_bytes < 0:
        found.append("above its limit")
    if status.retries:
        found.append(counted(status.retries, "allocator retry", "allocator retries"))
    if status.checkpoints:
        found.append(counted(status.checkpoints, "emergency checkpoint"))
    if silent_s > max(_SILENT_S, 10 * (status.step_seconds or 0.0)):
        found.append(f"silent for {format_seconds(silent_s)}")
    return found


def _probes(devices: tuple[Device, ...]) -> Iterator[Line]:
    rows = [
        ("the host's memory" if one.device == HOST else one.device, one.probed_by.text)
        for one in devices
        if one.probed_by is not None
    ]
    return _table("probes running", ("device", "by"), rows)


def _searches(searches: tuple[Search, ...]) -> Iterator[Line]:
    rows = [
        (one.id, f"{one.created:%Y-%m-%d %H:%M:%S}", str(one.probes), _asked(one), one.device_name, one.owner)
        for one in searches
    ]
    return _table("searches running", ("id", "since (UTC)", "probes", "model", "device", "by"), rows, right=(2,))


def _asked(one: Search) -> str:
    return f"{one.workload}, predicted" if one.predicted else one.workload


def _table(
    title: str,
    heads: tuple[str, ...],
    rows: Sequence[tuple[str, ...]],
    right: tuple[int, ...] = (),
    healths: list[Health] | None = None,
) -> Iterator[Line]:
    if not rows:
        return
    yield Line("")
    yield Line(title, heading=True)
    heading, *texts = align([heads, *rows], right=right)
    yield Line(f"  {heading}")
    for text, health in zip(texts, healths or [Health.OK] * len(rows), strict=True):
        yield Line(f"  {text}", health)


def _command(text: str) -> str:
    if not text:
        return "not visible from here"
    return text if len(text) <= _COMMAND_LENGTH else f"{text[: _COMMAND_LENGTH - 3]}..."
