"""Real workers on this host: a search on two of them, killed in the middle of a probe, and with them the tool."""

import os
import signal
from datetime import timedelta
from pathlib import Path

import psutil
import pytest

from autotune.model import Cause, Form, Outcome, ProbeResult
from tests.process.support import Tool


def worker_of(probe: int, module: str = "autotune.executors.host") -> psutil.Process:
    """The worker process that a probe runs below; the guardian between them is its child."""
    for process in psutil.Process(probe).parents():
        if module in " ".join(process.cmdline()):
            return process
    raise AssertionError(f"no worker above {psutil.Process(probe).parents()}")


def overlap(one: ProbeResult, other: ProbeResult) -> bool:
    """Whether they ran at the same time, for a part of it."""
    first, second = sorted((one, other), key=lambda probe: probe.started_at)
    return second.started_at < first.started_at + timedelta(seconds=first.seconds)


def test_probes_run_side_by_side_and_a_worker_killed_in_the_middle_of_one_changes_no_answer(tmp_path: Path) -> None:
    tool = Tool(tmp_path)
    tool.hold(2, 2)
    with tool.running("--workers", "2") as search:
        (probe, *_) = tool.wait_until_held(search, probes=2)  # the long one beside the short one that it follows
        worker_of(probe).kill()
        tool.let_go()
        assert search.wait(120) == 0, tool.stderr
    assert (tmp_path / "stdout").read_text() == "2\n"
    assert "was lost: its process was ended by signal 9" in tool.stderr
    record, probes = tool.search()
    lost = [one for one in probes if one.failure and one.failure.cause is Cause.LOST]
    assert lost and all(one.outcome is Outcome.UNRELIABLE for one in lost)
    assert not any(one.outcome in (Outcome.OUT_OF_MEMORY, Outcome.HOST_OUT_OF_MEMORY) for one in probes)
    assert record.answer is not None and record.answer.max_batch == 2
    assert [one.form for one in probes if one.fits].count(Form.LONG) == 1
    assert any(overlap(gone, one) for gone in lost for one in probes if one.fits)
    tool.no_process_left()


@pytest.mark.cluster
def test_nothing_outlives_a_tool_that_is_killed_with_its_workers_at_work(tmp_path: Path) -> None:
    tool = Tool(tmp_path)
    tool.hold(1, 2)
    with tool.running("--workers", "2") as search:
        tool.wait_until_held(search)
        os.kill(search.pid, signal.SIGKILL)
        search.wait(10)
        tool.no_process_left(within_s=10)


@pytest.mark.cluster
def test_ctrl_c_ends_workers_and_keeps_the_search(tmp_path: Path) -> None:
    tool = Tool(tmp_path)
    tool.hold(2, 2)
    with tool.running("--workers", "2") as search:
        tool.wait_until_held(search)
        search.send_signal(signal.SIGINT)
        assert search.wait(60) == 130, tool.stderr
        tool.no_process_left(within_s=10)
    assert "to continue: " in tool.stderr and "--workers 2" in tool.stderr
    tool.let_go()
    again = tool.run("--workers", "2")
    assert again.returncode == 0 and again.stdout == "2\n", again.stderr
    assert "going on with search" in again.stderr
