"""Running the tool as users do, in a process of its own, and looking at what it leaves: processes, ledger, texts."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import psutil

from autotune import api
from autotune.model import Form, ProbeResult, SearchRecord
from autotune.probe.launcher import Launcher

ROOT = Path(__file__).parents[2]
ASSETS = ROOT / "tests" / "assets" / "planted"
FORKS = Path(__file__).parent / "forks"
PATIENCE_S = 60.0
"""For what must happen, however slow the machine."""

Found = TypeVar("Found")


class Staying(Launcher):
    """A launcher that outlives the searches it serves, and forks what certifies, as it does on CUDA."""

    _certifies_afresh = False

    def preload(self, device: str) -> None:
        if self._guarded.process is None:
            super().preload(device)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """What a search does at its end; this one is closed by the fixture."""


def clean_environment(**variables: str) -> dict[str, str]:
    """The caller's environment without autotune's variables, this checkout importable, one thread a process."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AUTOTUNE_")}
    return {**kept, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **variables}


def forking_environment(**variables: str) -> dict[str, str]:
    """The same, for tools that fork what certifies: the fixture ``certified_in_forks`` for processes of their own.

    A fresh interpreter takes three seconds each time. It shows no more where neither memory nor how children begin is the
    subject, and tests that look at either have it.
    """
    return clean_environment(PYTHONPATH=f"{FORKS}{os.pathsep}{ROOT}", **variables)


def wait_for(look: Callable[[], Found], what: str, within_s: float = PATIENCE_S) -> Found:
    """Look again and again until the look is true; returns it. An AssertionError says that it never was."""
    deadline = time.monotonic() + within_s
    while not (found := look()):
        assert time.monotonic() < deadline, f"{what}: not within {within_s:g} s"
        time.sleep(0.01)
    return found


def alive(marker: str) -> dict[int, str]:
    """Processes whose environment holds the marker, with their command lines; zombies are not alive."""
    found = {}
    for process in psutil.process_iter():
        try:
            if marker in process.environ().values() and process.status() != psutil.STATUS_ZOMBIE:
                found[process.pid] = " ".join(process.cmdline())[:200]
        except (psutil.NoSuchProcess, psutil.AccessDenied):  # ended meanwhile, or somebody else's
            continue
    return found


def guardian_of(tool: subprocess.Popen[str]) -> psutil.Process:
    """The guardian below a running tool."""
    (guardian,) = psutil.Process(tool.pid).children()
    assert "autotune.probe.guardian" in " ".join(guardian.cmdline())
    return guardian


def keys(probes: tuple[ProbeResult, ...]) -> list[tuple[int, Form]]:
    """What was probed, in order."""
    return [(probe.batch_size, probe.form) for probe in probes]


@dataclass
class Tool:
    """The command ``autotune`` in a folder with a copy of holding.py and a ledger."""

    folder: Path
    marker: str = field(default_factory=lambda: f"planted-{uuid.uuid4().hex}")
    """In the environment of all that the tool starts."""
    storage: str = ""
    """Address of the ledger; empty = a file in the folder."""
    forks: bool = False
    """Whether what certifies is forked (see ``forking_environment``), or is a fresh interpreter as for users on the CPU."""

    def __post_init__(self) -> None:
        shutil.copy(ASSETS / "holding.py", self.folder)
        self.storage = self.storage or str(self.folder / "ledger.sqlite3")

    @property
    def environment(self) -> dict[str, str]:
        made = forking_environment if self.forks else clean_environment
        return made(PLANTED_FOLDER=str(self.folder), PLANTED_MARKER=self.marker)

    def argv(self, *options: str) -> list[str]:
        """The search of holding.py up to batch 2; script arguments come last, after ``--``.

        With a limit of its own: what is free in the machine changes with everything else that runs there.
        """
        fixed = ["--device", "cpu", "--storage", self.storage, "--memory-limit", "1GiB", "--max-batch", "2"]
        return [sys.executable, "-m", "autotune", "max-batch", "holding.py", *fixed, *options]

    def hold(self, batch_size: int, step: int, rank: int | None = None) -> None:
        """Let probes wait in this step of this size; only this one of their ranks if one is named."""
        (self.folder / "hold").write_text(f"{batch_size} {step}" + ("" if rank is None else f" {rank}"))

    def let_go(self) -> None:
        """Let waiting probes go on, and later ones not wait."""
        (self.folder / "hold").unlink()

    def held(self) -> list[int]:
        """Process ids of the probes that wait, or waited."""
        return sorted(int(path.name.removeprefix("held-")) for path in self.folder.glob("held-*"))

    @contextmanager
    def running(self, *options: str) -> Iterator[subprocess.Popen[str]]:
        """The search in a session of its own, as under a terminal of its own; killed at the end if it still runs."""
        with (self.folder / "stdout").open("w") as out, (self.folder / "stderr").open("w") as err:
            tool = subprocess.Popen(
                self.argv(*options),
                stdout=out,
                stderr=err,
                text=True,
                cwd=self.folder,
                env=self.environment,
                start_new_session=True,
            )
        try:
            yield tool
        finally:
            tool.kill()
            tool.wait()
            for pid in alive(self.marker):  # only after a failed test
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def wait_until_held(self, tool: subprocess.Popen[str], probes: int = 1) -> list[int]:
        """Process ids of the waiting probes."""

        def look() -> list[int]:
            assert tool.poll() is None, self.stderr
            return found if len(found := self.held()) >= probes else []

        return wait_for(look, "a probe in the middle of its step")

    @property
    def stderr(self) -> str:
        """What the last ``running`` tool wrote."""
        return (self.folder / "stderr").read_text()

    def run(self, *options: str) -> subprocess.CompletedProcess[str]:
        """The search from start to end."""
        return run(self.argv(*options), self.folder, self.environment)

    def searches(self) -> tuple[SearchRecord, ...]:
        """Newest first."""
        return api.searches(self.storage)

    def search(self) -> tuple[SearchRecord, tuple[ProbeResult, ...]]:
        """The only search of the ledger, and its probes."""
        (record,) = self.searches()
        return api.show(record.id, self.storage)

    def no_process_left(self, within_s: float = 2.0) -> None:
        """Fail unless everything the tool has started is gone in time."""
        deadline = time.monotonic() + within_s
        while left := alive(self.marker):
            assert time.monotonic() < deadline, f"still alive after {within_s:g} s: {left}"
            time.sleep(0.01)


def run(
    argv: list[str], folder: Path, environment: dict[str, str] | None = None, timeout_s: float = 120.0
) -> subprocess.CompletedProcess[str]:
    """A command from start to end, its output as text."""
    return subprocess.run(
        argv,
        cwd=folder,
        env=environment or clean_environment(),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
