"""Trainings that keep something of every step, and such that only seem to, diagnosed in children of one loaded file."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune import api
from autotune.diagnose.leaks.judge import judge_leaks
from autotune.model import Budget, LeakEvidence, LeakKind, Leaks, Section, Settings
from autotune.probe.launcher import Examined, Launcher
from autotune.units import MIB
from tests.process.support import ASSETS

LIMIT_BYTES = 512 * MIB
"""A half of it is torch's own."""
BATCH = 2
UNIT = 256 * 1024
"""What most kinds keep of a step: an activation of 256 rows and columns."""


class Growing:
    """A planted file, loaded once."""

    def __init__(self, file: str, folder: Path, device: str = "cpu", limit_bytes: int = LIMIT_BYTES) -> None:
        """``limit_bytes``: the budget."""
        self._limit_bytes = limit_bytes
        self._kind = folder / "kind"
        self._kind.write_text("plain")
        plan = api.plan(str(ASSETS / file), script_args=[f"@{self._kind}"], device=device)
        self._launcher = _Ahead(plan.source, timeout_s=120, seed=3)
        self._launcher.describe(device, BATCH)

    def ended(self, kind: str, *, steps: int | None = None) -> Examined:
        """The end of a process that looks for leaks of this kind."""
        self._kind.write_text(kind)
        limit_bytes = self._limit_bytes
        budget = Budget(
            limit_bytes=limit_bytes,
            source="--memory-limit",
            capacity_bytes=limit_bytes,
            others_bytes=0,
            headroom_bytes=0,
        )
        return self._launcher.examine(Section.LEAKS, BATCH, Settings(), budget, steps=steps, output="")

    def leaks(self, kind: str, *, steps: int | None = None) -> Leaks:
        """What is said of it."""
        ended = self.ended(kind, steps=steps)
        assert ended.failure is None, ended.failure
        assert isinstance(ended.seen, LeakEvidence)
        return judge_leaks(ended.seen, None)

    def close(self) -> None:
        """End every process."""
        self._launcher.close()


class _Ahead(Launcher):
    """Imports once what optimizers import: else each child does."""

    _ahead = True


@pytest.fixture(scope="module")
def growing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Growing]:
    """growing.py in one thread."""
    yield from _loaded("growing.py", tmp_path_factory)


@pytest.fixture(scope="module")
def growing_data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Growing]:
    """growing_data.py in one thread."""
    yield from _loaded("growing_data.py", tmp_path_factory)


def _loaded(file: str, folders: pytest.TempPathFactory) -> Iterator[Growing]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        found = Growing(file, folders.mktemp("growing"))
        yield found
        found.close()


GRAPH = {"graph: losses in a list": 1.25, "graph: outputs in a dict": 1.25, "graph: a running total": 1.25}
TENSORS = {
    "tensors: in a list": 1.0,
    "tensors: in a dict": 1.0,
    "tensors: one becomes larger": 1.0,
    "tensors: views of large ones": 1.0,
}
STATE = {"state: a buffer becomes larger": 1.0, "state: a buffer a step": 1.0, "state: a parameter a step": 1.0}
HOOKS = {"hooks: forward": 1.0, "hooks: on a gradient": 1.0, "hooks: before forward": 1.0}
CYCLES = {
    "cycles: collector switched off": 1.0,
    "cycles: collector too seldom": 1.0,
    "cycles: memory ends before": 32.0,
}
LOCKED = {
    "locked_cycles: hook of a tensor": 1.25,
    "locked_cycles: hook of a node": 1.25,
    "locked_cycles: metadata of a node": 1.25,
}
HOST = {
    "host: arrays in a list": 1.0,
    "host: numbers in a dict": 64_184 / UNIT,
    "host: bytes of a class": 1.0,
    "host: beside a small one": 1.0,
}
LEAKS: dict[str, float] = {**GRAPH, **TENSORS, **STATE, **HOOKS, **CYCLES, **LOCKED, **HOST}
"""Kind -> units that it keeps of a step: a graph keeps the activation and the batch."""
WORKERS = ["workers: a list of the data set", "workers: a dict of the module", "workers: batches"]
CLEAN = [
    "cyclic sizes",
    "a cache that levels off",
    "the last fifty",
    "a list that is emptied",
    "a running average",
    "a hook that is removed",
    "a cache of sixteen",
    "cycles that are collected",
    "lazy buffers",
]


def kind_of(name: str) -> LeakKind:
    """What a planted leak must be called."""
    return LeakKind(name.partition(":")[0])


def line_of(text: str, file: str = "growing.py") -> str:
    """``FILE:LINE`` of the only line of a planted file with this text, its path left out."""
    lines = (ASSETS / file).read_text().splitlines()
    (number,) = (number for number, line in enumerate(lines, 1) if text in line)
    return f"{file}:{number}"
