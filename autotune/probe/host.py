"""Host memory: what limits it here, and whether the kernel killed somebody for it. Parent side and guardian, no torch."""

import os
import resource
from dataclasses import dataclass
from pathlib import Path

import psutil

_UNLIMITED = 1 << 60  # cgroup v1 says "no limit" with a number near 2**63


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLimit:
    """The tightest bound on host memory for a process started here."""

    free_bytes: int
    """What the process may still take under that bound."""
    total_bytes: int
    """The bound itself."""
    source: str
    """``cgroup``, ``rlimit`` or ``available memory``."""


def host_limit(root: Path = Path("/sys/fs/cgroup"), proc: Path = Path("/proc/self/cgroup")) -> HostLimit:
    """The smallest of cgroup limit (v1 and v2, parents included), address-space or data rlimit, and available memory."""
    memory = psutil.virtual_memory()
    limits = [HostLimit(free_bytes=memory.available, total_bytes=memory.total, source="available memory")]
    for folder in _cgroup_folders(root, proc):
        total = _number(folder / "memory.max") or _number(folder / "memory.limit_in_bytes")
        if total is None or total >= _UNLIMITED:
            continue
        used = _number(folder / "memory.current") or _number(folder / "memory.usage_in_bytes") or 0
        reclaimable = _field(folder / "memory.stat", "inactive_file") or 0
        limits.append(HostLimit(free_bytes=max(0, total - used + reclaimable), total_bytes=total, source="cgroup"))
    for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
        soft = resource.getrlimit(kind)[0]
        if soft != resource.RLIM_INFINITY:
            limits.append(HostLimit(free_bytes=soft, total_bytes=soft, source="rlimit"))
    return min(limits, key=lambda limit: limit.free_bytes)


def own_data_bytes() -> int:
    """Private writable memory of this process (VmData, what RLIMIT_DATA counts); 0 where the kernel does not say."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:  # not Linux, where no such limit is enforced either
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmData:")), 0)


def shared_memory_bytes(mount: Path = Path("/dev/shm")) -> int | None:
    """Size of the mount that data loader workers hand batches over in; None where there is none."""
    try:
        found = os.statvfs(mount)
    except OSError:  # not Linux, or a container without it
        return None
    return found.f_blocks * found.f_frsize


def oom_kills(root: Path = Path("/sys/fs/cgroup"), proc: Path = Path("/proc/self/cgroup")) -> int:
    """How many processes the kernel has killed for memory so far in this cgroup; only differences mean anything."""
    for folder in _cgroup_folders(root, proc):
        for name in ("memory.events.local", "memory.events", "memory.oom_control"):
            count = _field(folder / name, "oom_kill")
            if count is not None:
                return count
    return _field(Path("/proc/vmstat"), "oom_kill") or 0


def _cgroup_folders(root: Path, proc: Path) -> list[Path]:
    """Folders of this process's memory cgroup, innermost first, v2 before v1; inside a container the root itself."""
    try:
        entries = [line.split(":", 2) for line in proc.read_text().splitlines()]
    except OSError:  # no procfs or no cgroups: then there is no cgroup limit either
        return []
    folders = []
    for _, controllers, path in entries:
        if controllers == "":
            bases = [root, root / "unified"]
        elif "memory" in controllers.split(","):
            bases = [root / "memory"]
        else:
            continue
        for base in bases:
            folder = base / path.lstrip("/")
            chain = [folder, *folder.parents]
            folders += [f for f in chain if f == base or base in f.parents]
    return [f for f in folders if f.is_dir()]


def _number(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:  # the file belongs to the other cgroup version
        return None
    return int(text) if text.isdigit() else None


def _field(path: Path, name: str) -> int | None:
    try:
        lines = path.read_text().splitlines()
    except OSError:  # the file belongs to the other cgroup version
        return None
    fields = dict(line.split(None, 1) for line in lines if " " in line)
    return int(fields[name]) if name in fields else None
