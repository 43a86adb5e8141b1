"""Workers in a real Ray cluster of one node, bound to loopback: killed in the middle of a probe, and the head restarted."""

import importlib.util
import os
import signal
from pathlib import Path

import psutil
import pytest

from autotune.model import Cause, Outcome, SearchState
from tests.process.ray_cluster import Cluster
from tests.process.support import Tool, wait_for

pytestmark = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed")


class RayTool(Tool):
    """The tool, with this cluster in its environment."""

    cluster: Cluster

    @property
    def environment(self) -> dict[str, str]:
        return {**self.cluster.environment, **super().environment, "HOME": str(self.cluster.folder)}

    def argv(self, *options: str) -> list[str]:
        return super().argv("--executor", "ray", "--executor-option", f"address={self.cluster.address}", *options)

    def no_loss_counts(self) -> None:
        """Lost probes are recorded as that, and nothing ran out of memory; the answer is what it is without a loss."""
        record, probes = self.search()
        assert record.state is SearchState.ANSWERED and record.answer is not None and record.answer.max_batch == 2
        lost = [one for one in probes if one.failure and one.failure.cause is Cause.LOST]
        assert lost and all(one.outcome is Outcome.UNRELIABLE for one in lost)
        assert not any(one.outcome in (Outcome.OUT_OF_MEMORY, Outcome.HOST_OUT_OF_MEMORY) for one in probes)


def tool_on(cluster: Cluster, folder: Path, marker: str) -> RayTool:
    tool = RayTool(folder, marker)
    tool.cluster = cluster
    return tool


def actor_of(probe: int) -> psutil.Process:
    """The process of the cluster that a probe runs below."""
    return next(one for one in psutil.Process(probe).parents() if "ray::" in " ".join([one.name(), *one.cmdline()]))


def test_a_worker_killed_in_the_middle_of_a_probe_is_another_one_later(tmp_path: Path) -> None:
    marker = f"planted-{tmp_path.name}-{os.getpid()}"
    with Cluster(PLANTED_FOLDER=str(tmp_path), PLANTED_MARKER=marker) as cluster:
        tool = tool_on(cluster, tmp_path, marker)
        tool.hold(2, 2)
        with tool.running() as search:
            (probe,) = tool.wait_until_held(search)
            actor_of(probe).kill()
            tool.let_go()
            assert search.wait(120) == 0, tool.stderr
        assert (tmp_path / "stdout").read_text() == "2\n"
        tool.no_loss_counts()


@pytest.mark.cluster
def test_a_search_outlives_its_cluster_and_goes_on_with_the_one_that_is_started_again(tmp_path: Path) -> None:
    marker = f"planted-{tmp_path.name}-{os.getpid()}"
    with Cluster(PLANTED_FOLDER=str(tmp_path), PLANTED_MARKER=marker) as cluster:
        tool = tool_on(cluster, tmp_path, marker)
        tool.hold(2, 2)
        with tool.running("--workers", "2") as search:
            tool.wait_until_held(search)
            cluster.kill()
            tool.let_go()
            wait_for(lambda: "was lost" in tool.stderr, "that the workers are missed")
            assert search.poll() is None
            cluster.start()
            assert search.wait(300) == 0, tool.stderr
        assert (tmp_path / "stdout").read_text() == "2\n"
        tool.no_loss_counts()


@pytest.mark.cluster
def test_what_runs_in_the_cluster_ends_with_the_tool(tmp_path: Path) -> None:
    marker = f"planted-{tmp_path.name}-{os.getpid()}"
    with Cluster(PLANTED_FOLDER=str(tmp_path), PLANTED_MARKER=marker) as cluster:
        tool = tool_on(cluster, tmp_path, marker)
        tool.hold(2, 2)
        with tool.running() as search:
            (probe,) = tool.wait_until_held(search)
            actor = actor_of(probe)
            search.send_signal(signal.SIGKILL)
            search.wait(10)
            psutil.wait_procs([actor, *([psutil.Process(probe)] if psutil.pid_exists(probe) else [])], timeout=60)
            assert not actor.is_running() and not psutil.pid_exists(probe)
