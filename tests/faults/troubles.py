"""Troubles that are no deaths: full disk, locked or damaged ledger, damaged files, dead NVML, a wall clock that jumps.

Each says once and clearly what is wrong, loses nothing, and is over when its cause is.
"""

import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.faults.bench import Bench
from tests.faults.injection import Injection, Rows, ended_well, inject, is_answer, kept
from tests.faults.striking import LEDGER, Fault

TROUBLE = frozenset({5})
_DISK_BYTES = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Something that a command meets when it starts."""

    group: str
    name: str
    begin: Callable[[Bench], None]
    end: Callable[[Bench], None]
    codes: frozenset[int] = TROUBLE
    says: str = "hint: "
    """Found in what it says."""


def meet(trouble: Trouble, bench: Bench) -> list[str]:
    """Run into it, end it, and run the command to its end; returns what is wrong."""
    answer, before = bench.answer(), bench.rows()
    trouble.begin(bench)
    try:
        met = bench.run()
    finally:
        trouble.end(bench)
    wrong = ended_well(met, trouble.codes)
    if trouble.says not in met.stderr:
        wrong.append(f"it does not say {trouble.says!r} but: {met.stderr[-500:]}")
    between: Rows = bench.rows()
    wrong += kept(before, between)
    final = bench.run()
    wrong += [f"then: {words}" for words in ended_well(final, frozenset({0}))]
    wrong += kept(between, bench.rows()) + is_answer(bench, answer, "at the end")
    return wrong + [f"left over: {name}" for name in bench.left_over()]


def of_the_ledger() -> list[Trouble]:
    """The file is damaged, in a row or as a whole, held by another, or written by a newer version."""

    def execute(statement: str) -> Callable[[Bench], None]:
        def begin(bench: Bench) -> None:
            _save(bench)
            with sqlite3.connect(bench.ledger) as connection:
                connection.execute(statement)
            connection.close()

        return begin

    def overwrite(data: bytes) -> Callable[[Bench], None]:
        def begin(bench: Bench) -> None:
            _save(bench)
            bench.ledger.write_bytes(data)

        return begin

    def cut(bench: Bench) -> None:
        _save(bench)
        with bench.ledger.open("rb+") as file:
            file.truncate(bench.ledger.stat().st_size // 2)

    newest = "(SELECT id FROM autotune_searches ORDER BY created DESC LIMIT 1)"
    rows = {
        "a number that is text": f"UPDATE autotune_probes SET batch_size = 'many' WHERE search_id = {newest}",
        "JSON that is none": f"UPDATE autotune_searches SET answer = '{{' WHERE id = {newest}",
        "a pickle": f"UPDATE autotune_searches SET answer = X'80049563' WHERE id = {newest}",
        "a document without fields": f"UPDATE autotune_searches SET budget = '{{}}' WHERE id = {newest}",
    }
    found = [
        Trouble(
            group="corrupt row", name=name, begin=execute(text), end=_restore, codes=frozenset({0}), says="is damaged"
        )
        for name, text in rows.items()
    ]
    found += [
        Trouble(group="corrupt ledger", name="no database", begin=overwrite(b"garbage" * 999), end=_restore),
        Trouble(group="corrupt ledger", name="cut in half", begin=cut, end=_restore),
        Trouble(
            group="corrupt ledger",
            name="of a newer version",
            begin=execute("UPDATE autotune_alembic_version SET version_num = '9999'"),
            end=_restore,
        ),
    ]
    return found


def of_files() -> list[Trouble]:
    """``autotune.json`` holds something else: it is replaced."""

    def replace(data: bytes) -> Callable[[Bench], None]:
        def begin(bench: Bench) -> None:
            bench.document.write_bytes(data)

        return begin

    return [
        Trouble(group="corrupt config", name=name, begin=replace(data), end=_nothing, codes=frozenset({0}), says="")
        for name, data in {"no JSON": b"{", "bytes": b"\xff\x00\xfe", "nothing": b"", "a list": b"[[[[]]]]"}.items()
    ]


def of_nvml() -> list[Trouble]:
    """NVML is not there, its driver is gone, or it refuses: on the CPU nobody needs it."""

    def dead(error: str) -> Callable[[Bench], None]:
        def begin(bench: Bench) -> None:
            bench.variables["PLANTED_NVML"] = error

        return begin

    def alive(bench: Bench) -> None:
        del bench.variables["PLANTED_NVML"]

    names = ["NVMLError_DriverNotLoaded", "NVMLError_LibraryNotFound", "NVMLError_Unknown", "NVMLError_GpuIsLost"]
    return [
        Trouble(group="dead NVML", name=name, begin=dead(name), end=alive, codes=frozenset({0}), says="")
        for name in names
    ]


def full_disks(random: Random) -> list[Injection]:
    """The disk fills while a search runs."""
    found = []
    for point in (
        "guardian: after",
        "begin: before",
        "probe: before",
        "add: before",
        "finish: before",
        "document: begin",
    ):
        fault = Fault(point=point, visit=random.randint(1, 4) if point.startswith("add") else 1, act="fill")
        found.append(Injection(group="full disk", fault=fault, codes=TROUBLE))
    return found


def locks(random: Random) -> list[Injection]:
    """Another process keeps the ledger locked until the tool has given up."""
    points = {"begin: before": 1, "add: before": 5, "finish: before": 1}
    return [
        Injection(group="locked ledger", fault=Fault(point=p, visit=random.randint(1, n), act="lock"), codes=TROUBLE)
        for p, n in points.items()
    ]


def clock_jumps(random: Random) -> list[Injection]:
    """A day back and ahead: while a probe trains, between two probes; and then the tool dies."""
    found = []
    for act in ("day back", "day ahead"):
        for point in ("forward", "add: after"):
            process = random.randint(1, 5) if point == "forward" else 1
            fault = Fault(point=point, process=process, act=act)
            found.append(Injection(group="clock jump", fault=fault, codes=frozenset({0})))
            fault = Fault(point=point, process=process, act=f"{act}, kill")
            found.append(Injection(group="clock jump and death", fault=fault, codes=frozenset({-9})))
    return found


@contextmanager
def small_disk(folder: Path) -> Iterator[bool]:
    """A file system of 4 MiB at this folder; False where this user may not mount one."""
    folder.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={_DISK_BYTES},mode=700", "autotune-faults", str(folder)]
    try:
        is_mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        is_mounted = False
    try:
        yield is_mounted
    finally:
        if is_mounted:
            subprocess.run(["umount", str(folder)], capture_output=True, check=False)


def inject_on_small_disk(injection: Injection, bench: Bench) -> list[str]:
    """As ``inject``, and there is room again before the command is run to its end."""
    return inject(injection, bench, meanwhile=lambda: (bench.folder / "filler").unlink(missing_ok=True))


def _nothing(bench: Bench) -> None:
    """For what the tool ends by itself."""


def _save(bench: Bench) -> None:
    (bench.folder / "saved").write_bytes(bench.ledger.read_bytes())


def _restore(bench: Bench) -> None:
    for name in (f"{LEDGER}-wal", f"{LEDGER}-shm"):
        (bench.folder / name).unlink(missing_ok=True)
    (bench.folder / "saved").replace(bench.ledger)
