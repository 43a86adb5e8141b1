"""The tool itself is killed or stopped while several ranks train: nothing is left of them, and the search goes on later."""

import os
import signal
from pathlib import Path

import psutil
import pytest

from autotune.model import Outcome
from tests.process.support import Tool, alive, keys

FORWARD, COLLECTIVE = None, 1
"""Which rank is held: all of them in the forward pass; the second, for which the first then waits in a collective."""
CODES = {signal.SIGKILL: -9, signal.SIGTERM: 143, signal.SIGINT: 130}


def listening(marker: str) -> list[object]:
    """Ports on which something of the tool's listens; ranks that train together have some."""
    found: list[object] = []
    for pid in alive(marker):
        found += [one.laddr for one in psutil.Process(pid).net_connections("tcp") if one.status == psutil.CONN_LISTEN]
    return found


@pytest.mark.parametrize(
    ("number", "rank"),
    [
        (signal.SIGKILL, COLLECTIVE),
        *[
            pytest.param(number, rank, marks=pytest.mark.cluster)
            for number, rank in ((signal.SIGKILL, FORWARD), *((n, r) for n in (15, 2) for r in (FORWARD, COLLECTIVE)))
        ],
    ],
)
def test_c34_nothing_outlives_a_tool_that_ends_in_a_probe_of_two_ranks_and_the_search_goes_on(
    number: int, rank: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))  # of the tool and all below it
    tool = Tool(tmp_path)
    tool.hold(2, 2, rank)
    with tool.running("--ranks", "2") as search:
        tool.wait_until_held(search, probes=2 if rank is FORWARD else 1)
        assert listening(tool.marker), "two ranks that train together are connected"
        os.kill(search.pid, number)
        assert search.wait(60) == CODES[signal.Signals(number)], tool.stderr
        tool.no_process_left(within_s=10)
    assert listening(tool.marker) == []
    before = tool.search()[1]
    assert keys(before) and all(probe.fits and len(probe.ranks) == 2 for probe in before)
    tool.let_go()
    again = tool.run("--ranks", "2")
    assert (again.returncode, again.stdout) == (0, "2\n"), again.stderr
    assert "going on with search" in again.stderr
    record, probes = tool.search()
    assert probes[: len(before)] == before and len(set(keys(probes))) == len(probes)
    assert record.answer is not None and record.answer.max_batch == 2
    assert all(probe.outcome is Outcome.FITS for probe in probes)
    left = [path.name for path in (tmp_path / "tmp").iterdir() if not path.name.startswith("torchinductor_")]
    assert left == [], "working files of the tool that was killed, and of the one after it"
