"""Who runs a search, and whether they still do.

An owner is written ``host:pid:start``. On the same machine the process itself tells: it is found by its id and by when it
began, counted from the start of the machine, since the wall clock may be set in between. Of processes elsewhere (another
host, another container) nothing can be seen; there the lease decides, which the owner renews before each probe.
"""

import os
import platform
import re
import sys
from datetime import datetime, timedelta
from pathlib import Path
from uuid import uuid4

from autotune.model import owner_words

LONGEST_LEASE = timedelta(days=7)
"""A lease that ends later than this from now was written before the clock was set back, and counts as ended."""
_FORGOTTEN = timedelta(days=1)
"""A living process whose lease ended so long ago is not at its search any more, as far as anybody can tell."""

_PID = re.compile(r"[0-9]{1,10}")

_here: set[str] = set()
"""Owners that are searches of this very process: its id alone would say that all it ever began still run."""


def new_owner() -> str:
    """An owner that nobody had before, for one search of this process."""
    return f"{platform.node()}:{os.getpid()}:{_started(os.getpid())}-{uuid4().hex[:8]}"


def at_work(owner: str) -> None:
    """From now on this process runs the search of this owner."""
    _here.add(owner)


def done(owner: str) -> None:
    """This process does not run it any more."""
    _here.discard(owner)


def why_ended(owner: str, lease_until: datetime | None, now: datetime) -> str:
    """Why a search that the ledger calls running is not, in a sentence; empty if it is.

    Args:
        owner: as in the ledger.
        lease_until: None in ledgers of older versions.
        now: by the clock that the lease was made with.
    """
    alive = _is_alive(owner)
    words = owner_words(owner)
    if alive is False:
        return f"its {words} ended without a word"
    if lease_until is None:
        return "" if alive else f"nothing shows that its {words} still runs"
    if alive:
        forgotten = now > lease_until + _FORGOTTEN
        return f"its {words} has not gone on with it for over a day" if forgotten else ""
    if now <= lease_until <= now + LONGEST_LEASE:
        return ""
    return f"its {words} has not been heard of since {lease_until:%Y-%m-%d %H:%M:%S} UTC"


def _is_alive(owner: str) -> bool | None:
    """Whether the process lives; None where that cannot be seen from here."""
    if owner in _here:
        return True
    if owner.count(":") < 2:
        return None
    host, pid_text, start = owner.rsplit(":", 2)
    if not host or host != platform.node() or not _PID.fullmatch(pid_text):
        return None
    pid = int(pid_text)
    run_apart = start.rpartition("-")[0]
    place = run_apart.split("-") if run_apart else [start]
    import psutil  # of no use to a list in which nothing runs

    try:
        if len(place) == 1:  # where there is no /proc, and in ledgers of older versions
            return pid != os.getpid() and f"{psutil.Process(pid).create_time():.2f}" == place[0]
        if len(place) != 4:
            return None
        return _is_alive_by_proc(pid, place)
    except psutil.Error:
        return False
    except (OSError, OverflowError):  # no /proc here though it was written by one; no process has such an id
        return None


def _is_alive_by_proc(pid: int, place: list[str]) -> bool | None:
    machine, boot, namespace, ticks = place
    here = _place()
    if machine != here[0]:
        return None  # another machine of the same name
    if boot != here[1]:
        return False if machine != _UNKNOWN else None  # the machine was started again since
    if namespace != here[2]:
        return None  # a container of the same name
    if pid == os.getpid():
        return False  # its searches are in ``_here``
    began = _ticks(pid)
    import psutil

    if began is None and psutil.pid_exists(pid):
        return None  # somebody else's, where /proc hides them (hidepid), or about to be buried
    return began == ticks


_UNKNOWN = "0"


def _started(pid: int) -> str:
    if sys.platform == "linux":
        try:
            return "-".join((*_place(), _ticks(pid) or _UNKNOWN))
        except OSError:  # no /proc
            pass
    import psutil

    return f"{psutil.Process(pid).create_time():.2f}"


def _place() -> tuple[str, str, str]:
    """(machine, its start, the namespace in which process ids are counted)."""
    try:
        machine = Path("/etc/machine-id").read_text("ascii").strip()[:8]
    except OSError:
        machine = ""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii")[:8]
    return machine or _UNKNOWN, boot, os.readlink("/proc/self/ns/pid").strip("pid:[]")


def _ticks(pid: int) -> str | None:
    """When the process began, in clock ticks since the machine's start: field 22 of proc_pid_stat(5); None = no such."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat.rpartition(")")[2].split()  # the name before it may hold anything
    return _UNKNOWN if fields[0] in "ZX" else fields[19]  # a zombie runs nothing
