"""A folder with the planted workload, a ledger and ``autotune.json``; runs the same command there again and again."""

import json
import os
import shutil
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autotune import api
from autotune.model import ProbeResult, SearchRecord
from tests.faults.striking import LEDGER, Fault, happened, lift
from tests.process.support import ASSETS, alive, clean_environment

SITE = Path(__file__).parent / "site"
LIMIT_S = 180.0
"""A command that takes longer hangs."""
GONE_S = 2.0
"""Everything that a dead tool had started is gone by then."""
DOCUMENT = "autotune.json"


@dataclass(frozen=True, slots=True)
class Ran:
    """How one command ended, and what it left."""

    code: int | None
    """None = it hung, and was killed."""
    stderr: str
    struck: bool
    """Whether its fault happened."""
    orphans: tuple[str, ...]
    """Command lines of processes that outlived it by ``GONE_S``."""

    @property
    def told(self) -> int:
        """How many probes it said were finished."""
        return sum(line.startswith("probe ") for line in self.stderr.splitlines())


@dataclass
class Bench:
    """One place where searches are disturbed."""

    folder: Path
    options: str = ""
    """Of the driver."""
    site: bool = False
    """Whether every process has ``site/sitecustomize.py``."""
    variables: dict[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = ("search", "dying.py", "--allow", "none")
    marker: str = field(default_factory=lambda: f"planted-{uuid.uuid4().hex}")
    """In the environment of all that is started here."""

    def __post_init__(self) -> None:
        for folder in (self.work, self.folder / "tmp", self.outside):
            folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(ASSETS / "dying.py", self.work)

    @property
    def work(self) -> Path:
        """Where the command is run."""
        return self.folder / "work"

    @property
    def outside(self) -> Path:
        """Where the test's own files are: the folder may be a disk that is full."""
        return self.folder.with_name(f"{self.folder.name}-outside")

    @property
    def document(self) -> Path:
        return self.work / DOCUMENT

    @property
    def ledger(self) -> Path:
        return self.folder / LEDGER

    @property
    def environment(self) -> dict[str, str]:
        environment = clean_environment(
            PLANTED_FOLDER=str(self.folder),
            PLANTED_MARKER=self.marker,
            TMPDIR=str(self.folder / "tmp"),
            NO_COLOR="1",
            **self.variables,
        )
        if self.site:
            environment["PYTHONPATH"] = f"{SITE}{os.pathsep}{environment['PYTHONPATH']}"
        return environment

    def run(self, *more: str, fault: Fault | None = None) -> Ran:
        """The search, with everything that it must leave behind looked at afterwards."""
        if fault is None:
            lift(self.folder)
        else:
            fault.write(self.folder)
        fixed = ["--device", "cpu", "--memory-limit", "1GiB", "--storage", str(self.ledger)]
        argv = [sys.executable, "-m", "tests.faults.driver", f"{self.options},", *self.command, *fixed, *more]
        with (self.outside / "stderr").open("wb") as err:
            tool = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=err,
                cwd=self.work,
                env=self.environment,
                start_new_session=True,  # a terminal of its own, for Ctrl-C
            )
        try:
            code: int | None = tool.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            tool.kill()
            tool.wait()
        orphans = self._outlived()
        said = (self.outside / "stderr").read_text(errors="replace")
        return Ran(code, said, happened(self.folder), orphans)

    def _outlived(self) -> tuple[str, ...]:
        deadline = time.monotonic() + GONE_S
        while (left := alive(self.marker)) and time.monotonic() < deadline:
            time.sleep(0.01)
        for pid in left:
            os.kill(pid, 9)
        return tuple(left.values())

    def rows(self) -> dict[str, tuple[SearchRecord, tuple[ProbeResult, ...]]]:
        """All searches with their probes, by id, as a copy of the ledger has them: looking must not repair it."""
        if not self.ledger.exists():
            return {}
        copy = self.outside / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        copy.mkdir()
        for part in self.folder.glob(f"{LEDGER}*"):
            shutil.copy(part, copy)
        try:
            records = api.searches(str(copy / LEDGER), limit=10_000)
            return {record.id: api.show(record.id, str(copy / LEDGER)) for record in records}
        finally:
            shutil.rmtree(copy)

    def left_over(self) -> list[str]:
        """Working files that nobody needs any more."""
        expected = {"dying.py", DOCUMENT, f"{DOCUMENT}.stale", "__pycache__"}
        here = [path.name for path in self.work.iterdir() if path.name not in expected]
        beside = [path.name for path in self.folder.glob(f"{LEDGER}-*")]
        files = (path.name for path in (self.folder / "tmp").iterdir())
        tmp = [f"tmp/{name}" for name in files if not name.startswith("torchinductor_")]  # torch's own, made at import
        return sorted([*here, *beside, *tmp])

    def answer(self) -> dict[str, Any] | None:
        """What ``autotune.json`` recommends, without what differs from run to run; None if there is no such file.

        Raises:
            UsageError: it is not a document of autotune's.
        """
        from autotune.report.document import read

        if not self.document.exists():
            return None
        text = self.document.read_text()
        read(text)
        content = json.loads(text)
        return {
            "batch": {
                name: content["batch"][name] for name in ("micro_batch", "accumulate", "max_batch", "refuted_at")
            },
            "evaluation": content["evaluation"],
            "settings": content["settings"],
            "workload": content["workload"]["fingerprint"],
            "complete": content["complete"],
        }
