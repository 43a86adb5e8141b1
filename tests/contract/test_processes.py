"""Several processes on one ledger, and processes that die."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from autotune.storage.store import Store
from tests.contract.samples import search

CHILD = Path(__file__).with_name("child.py")
SEARCH_ID = "shared"


@contextmanager
def child(url: str, count: int, *more: str) -> Iterator[subprocess.Popen[str]]:
    """A child that has started and waits for the line that lets it work."""
    command = [sys.executable, str(CHILD), url, SEARCH_ID, str(count), *more]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def let_work(processes: list[subprocess.Popen[str]]) -> list[tuple[int, str, str]]:
    """Let all work at once; exit code, output and errors of each."""
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    outputs = [process.communicate(timeout=120) for process in processes]
    return [(process.returncode, *output) for process, output in zip(processes, outputs, strict=True)]


def test_c35_two_processes_writing_at_once_lose_nothing(url: str) -> None:
    with Store.open(url) as store, ExitStack() as stack:
        store.begin(search(SEARCH_ID))
        processes = [stack.enter_context(child(url, 40)) for _ in range(2)]
        assert let_work(processes) == [(0, "done\n", "")] * 2
        probes = store.probes(SEARCH_ID)
        for process in processes:
            sizes = [probe.batch_size for probe in probes if probe.launcher == str(process.pid)]
            assert sizes == list(range(1, 41))
        assert len(probes) == 80


def test_a_probe_outlives_the_process_that_wrote_it(url: str) -> None:
    with Store.open(url) as store, child(url, 3, "kill") as process:
        store.begin(search(SEARCH_ID))
        assert let_work([process]) == [(-9, "", "")]
        assert [probe.batch_size for probe in store.probes(SEARCH_ID)] == [1, 2, 3]


def test_the_store_brings_no_heavy_library() -> None:
    code = "import sys, autotune.storage.store; print({'torch', 'typer', 'optuna', 'alembic'} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "set()\n"
