"""What holds for a whole run: test processes share the cores, and the collector leaves alone what is imported.

The first test file imports torch, which reads its number of threads then: this file must not.
"""

import gc
import os
import signal
import sys
from collections.abc import Generator, Iterator
from itertools import groupby
from pathlib import Path

import pytest

from tests import postgres as server_programs

_MANY = 300
"""Modules imported since the last look; torch's compiler, which comes with the first optimizer step, has 800."""

TESTS = Path(__file__).parent
SLOW = {"process", "integration", "faults"}
"""Folders of tests that start processes, seconds each."""

_modules_then = 0
_file_then: Path | None = None

# Threads of test processes and their children that outnumber the cores wait for each other at every barrier: a step of
# examples/tiny_gpt.py takes a fifth more processor time then, and twice as long.
if _workers := int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "0")):
    _cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, _cores // _workers)))

# Scripts of a shell start their background jobs with it ignored, and so would be all children that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _freeze() -> None:
    """Take everything that is alive out of later collections; each would look at a million objects of torch and SQLAlchemy.

    Probes in this process collect on purpose, a comparison twice: a fifth of a second each time without this.
    """
    global _modules_then
    gc.collect()
    gc.freeze()
    _modules_then = len(sys.modules)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Import all test files without collections: they make a lot of objects and hardly any garbage."""
    gc.disable()
    try:
        return (yield)
    finally:
        _freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)  # after what is not run was taken out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each worker its part of the slow files first and of the short tests then.

    Each gets an equal number to begin with, and who is done takes from the end of another's: short tests are left there, so
    that nobody waits for the last slow one. In the order of the folders all slow ones would be one worker's.
    """
    if _workers < 2:
        return
    slow = [item for item in items if item.path.relative_to(TESTS).parts[0] in SLOW]
    first = set(slow)
    others = [item for item in items if item not in first]
    files = [list(found) for _, found in groupby(slow, key=lambda item: item.path)]
    count, ordered = len(items), []
    for worker in range(_workers):
        end = count * (worker + 1) // _workers
        ordered += [item for found in files[worker::_workers] for item in found]
        fill = max(0, end - len(ordered))
        ordered += others[:fill]
        others = others[fill:]
    items[:] = [*ordered, *others]


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Do the same again once a test has imported much more, and for what the last test file keeps (recordings, read once)."""
    global _file_then
    if item.path != _file_then or len(sys.modules) > _modules_then + _MANY:
        _file_then = item.path
        _freeze()


@pytest.fixture(scope="session")
def postgres() -> Iterator[server_programs.Server]:
    """A real server; a test that asks for it is skipped where there is none."""
    pytest.importorskip("psycopg", reason='the driver is missing: pip install "autotune-torch[postgres]"')
    binaries = server_programs.programs()
    if binaries is None:
        pytest.skip("the programs of PostgreSQL are missing: apt-get install postgresql")
    with server_programs.running(binaries) as server:
        yield server
