"""At a point of a search, in whatever process that is: do there, once, what the fault of this run says.

The planted workload (``tests/assets/planted/dying.py``) calls ``reached`` at every phase of a probe, and the tool is run
under ``tests.faults.driver``, which calls it around what the tool does. Nothing here waits for a time to pass.
"""

import json
import os
import resource
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import psutil

FOLDER = "PLANTED_FOLDER"
"""Variable that names the folder of the fault and of its traces."""
LEDGER = "ledger.sqlite3"
_TORN_BYTES = 300
"""How much of a file is written before the process that writes it dies; less than a page of SQLite, or a document."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What happens, and where."""

    point: str
    process: int = 1
    """It happens in this one of the processes that get there, counted from 1 ..."""
    visit: int = 1
    """... when it gets there for this time."""
    act: str = "kill"
    """Signals' names in small letters, or a name of ``_ACTS``, or such with a comma between them."""
    victim: str = "tool"
    """Who gets the signal: ``tool``, ``guardian``, ``zygote``, ``self``, ``group`` (the tool's, as a terminal does)."""

    def write(self, folder: Path) -> None:
        """Let it happen in what is started from now on; what an earlier one left is removed."""
        lift(folder)
        (folder / "fault.json").write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """None where there is none, or it has happened."""
        try:
            return None if (folder / "struck").exists() else cls(**json.loads((folder / "fault.json").read_text()))
        except FileNotFoundError:
            return None


def lift(folder: Path) -> None:
    """Let nothing happen."""
    for name in ("fault.json", "visits", "struck"):
        (folder / name).unlink(missing_ok=True)


def happened(folder: Path) -> bool:
    """Whether the point was reached."""
    return (folder / "struck").exists()


def reached(point: str) -> None:
    """Called by the process that is at this point."""
    folder = Path(os.environ[FOLDER])
    fault = Fault.read(folder)
    if fault is None or fault.point != point or not _is_turn(fault, folder):
        return
    (folder / "struck").touch()
    for act in fault.act.split(", "):
        if act in _ACTS:
            _ACTS[act](folder)
        else:
            _strike(act, fault.victim)


def _is_turn(fault: Fault, folder: Path) -> bool:
    with (folder / "visits").open("a+") as visits:
        visits.write(f"{os.getpid()}\n")
        visits.flush()
        visits.seek(0)
        pids = visits.read().split()
    me = str(os.getpid())
    return list(dict.fromkeys(pids)).index(me) + 1 == fault.process and pids.count(me) == fault.visit


def _strike(signals: str, whom: str) -> None:
    """Send the signals, and be there when they take effect."""
    numbers = [signal.Signals[f"SIG{name.upper()}"] for name in signals.split()]
    tool, guardian, zygote = _family()
    if whom == "group":
        for number in numbers:
            os.killpg(tool, number)
        _wait_for_the_end(tool)
        return
    victim = {"tool": tool, "guardian": guardian, "zygote": zygote, "self": os.getpid()}[whom]
    for number in numbers:
        os.kill(victim, number)
    if victim != os.getpid():
        _wait_for_the_end(victim)


def _wait_for_the_end(pid: int) -> None:
    """Until this process is dead; a probe whose tool dies is killed meanwhile."""
    if pid != os.getpid():
        select.select([os.pidfd_open(pid)], [], [], 30.0)


def _family() -> tuple[int, int, int]:
    """Process ids of tool, guardian and zygote; 0 for one that there is not (yet)."""
    me = psutil.Process()
    line = [me, *me.parents()]
    guardian = next((process for process in line if _runs(process, "autotune.probe.guardian")), None)
    if guardian is None:  # this is the tool itself
        tool = me
        guardian = next((child for child in me.children() if _runs(child, "autotune.probe.guardian")), None)
    else:
        tool = guardian.parent() or me
    zygotes = [child for child in guardian.children() if _runs(child, "autotune.probe.zygote")] if guardian else []
    zygote = min(zygotes, key=lambda process: process.create_time(), default=None)  # forked probes look like it
    return tool.pid, guardian.pid if guardian else 0, zygote.pid if zygote else 0


def _runs(process: psutil.Process, module: str) -> bool:
    return any(f"from {module} import main" in word for word in process.cmdline())


# --- what is no signal ------------------------------------------------------------------------------------------------


def _tear(limit_bytes: int) -> None:
    """Let the kernel kill this process in the middle of a write: whatever reaches beyond the limit is cut there."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, resource.RLIM_INFINITY))


def _tear_log(folder: Path) -> None:
    """The next write to the ledger's write-ahead log is cut short."""
    log = folder / f"{LEDGER}-wal"
    _tear((log.stat().st_size if log.exists() else 0) + _TORN_BYTES)


def _tear_ledger(folder: Path) -> None:
    """The next copy of the log into the ledger is cut in its middle."""
    _tear((folder / LEDGER).stat().st_size // 2 + _TORN_BYTES)


def _tear_document(_: Path) -> None:
    _tear(_TORN_BYTES)


def _fill_disk(folder: Path) -> None:
    """Leave no byte free where the ledger and the working files are (a small file system of their own)."""
    with (folder / "filler").open("wb", buffering=0) as filler:
        for size in (1 << 16, 1 << 12, 1 << 6, 1):
            try:
                while filler.write(b"\0" * size) == size:
                    pass
            except OSError:  # full for pieces of this size
                continue


def _jump(seconds: float) -> Callable[[Path], None]:
    """Set the wall clock of all processes of this run, as ``site/sitecustomize.py`` reads it."""

    def jump(folder: Path) -> None:
        (folder / "clock").write_text(repr(seconds))

    return jump


_HOLDER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.readline()
"""


def _lock(folder: Path) -> None:
    """Another process takes the ledger's write lock, and keeps it until this one has ended."""
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(folder / LEDGER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    holder.stdout.readline()
    holder.returncode = 0  # ends with its standard input, which ends with this process
    _kept.append(holder)


_kept: list[subprocess.Popen[bytes]] = []

_ACTS: dict[str, Callable[[Path], None]] = {
    "torn log": _tear_log,
    "torn ledger": _tear_ledger,
    "torn document": _tear_document,
    "fill": _fill_disk,
    "lock": _lock,
    "day back": _jump(-86_400.0),
    "day ahead": _jump(86_400.0),
}
