"""Host memory: what limits it here, and whether the kernel killed somebody for it. Parent side and guardian, no torch."""

import os
import resource
from dataclasses import dataclass
from pathlib import Path

import psutil

_HOST_COUNTER = Path("/proc/vmstat")
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
    shared_by: str = ""
    """Who has it together: ``host``, or the cgroup; empty = each process has it for itself."""


def host_limit(
    root: Path = Path("/sys/fs/cgroup"), proc: Path = Path("/proc/self/cgroup"), *, rlimits: bool = True
) -> HostLimit:
    """The smallest of cgroup limit (v1 and v2, parents included), address-space or data rlimit, and available memory.

    ``rlimits``: of the process, as if it held nothing; leave them out where the process is one that does.
    """
    memory = psutil.virtual_memory()
    limits = [
        HostLimit(free_bytes=memory.available, total_bytes=memory.total, source="available memory", shared_by="host")
    ]
    for folder in _cgroup_folders(root, proc):
        # Above memory.high a process is not killed but slowed down to a crawl.
        bounds = [_number(folder / name) for name in ("memory.max", "memory.high", "memory.limit_in_bytes")]
        total = min((bound for bound in bounds if bound is not None), default=_UNLIMITED)
        if total >= _UNLIMITED:
            continue
        used = _number(folder / "memory.current") or _number(folder / "memory.usage_in_bytes") or 0
        # Version 1 counts a folder's own pages under the plain name, and those of folders below it as well under "total".
        stat = folder / "memory.stat"
        reclaimable = _field(stat, "total_inactive_file") or _field(stat, "inactive_file") or 0
        free = min(total, max(0, total - used + reclaimable))
        limits.append(HostLimit(free_bytes=free, total_bytes=total, source="cgroup", shared_by=str(folder)))
    for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA) if rlimits else ():
        soft = resource.getrlimit(kind)[0]
        if soft != resource.RLIM_INFINITY:
            limits.append(HostLimit(free_bytes=soft, total_bytes=soft, source="rlimit"))
    return min(limits, key=lambda limit: limit.free_bytes)


def available_bytes() -> int:
    """Memory of the host that can be had without swapping."""
    return psutil.virtual_memory().available


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


def oom_kills(root: Path = Path("/sys/fs/cgroup"), proc: Path = Path("/proc/self/cgroup")) -> tuple[Path, int]:
    """A counter of this cgroup, and how many processes the kernel has killed for memory by it; see ``oom_kills_since``."""
    for folder in _cgroup_folders(root, proc):
        for name in ("memory.events.local", "memory.events", "memory.oom_control"):
            count = _field(folder / name, "oom_kill")
            if count is not None:
                return folder / name, count
    return _HOST_COUNTER, _field(_HOST_COUNTER, "oom_kill") or 0


def oom_kills_since(before: tuple[Path, int], after: tuple[Path, int]) -> int:
    """How many were killed in between; none where this process was moved to another cgroup, or the counter began anew."""
    return max(0, after[1] - before[1]) if after[0] == before[0] else 0


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
