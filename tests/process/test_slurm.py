"""Workers in jobs: by submitit's local executor everywhere, and on a real Slurm cluster of one node where it starts."""

import importlib.util
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autotune.executors import mailbox as mailboxes
from autotune.executors.mailbox import Beat, Caller, Mailbox
from autotune.model import Cause, Outcome, SearchState
from tests.process.slurm_cluster import SlurmCluster, why_not
from tests.process.support import Tool, wait_for

needs_submitit = pytest.mark.skipif(importlib.util.find_spec("submitit") is None, reason="submitit is not installed")


class SlurmTool(Tool):
    """The tool, whose jobs go to this cluster."""

    variables: dict[str, str]
    where: tuple[str, ...] = ()

    @property
    def environment(self) -> dict[str, str]:
        return {**super().environment, **self.variables}

    def argv(self, *options: str) -> list[str]:
        return super().argv("--executor", "slurm", *self.where, *options)


def tool(folder: Path, variables: dict[str, str], *options: str) -> SlurmTool:
    found = SlurmTool(folder)
    found.variables = variables
    found.where = tuple(word for option in options for word in ("--executor-option", option))
    return found


@needs_submitit
def test_a_worker_in_a_job_of_submitit_answers_and_leaves_nothing(tmp_path: Path) -> None:
    local = tool(tmp_path, {}, "cluster=local")
    ended = local.run()
    assert (ended.returncode, ended.stdout) == (0, "2\n"), ended.stderr
    assert "was submitted for a worker" in ended.stderr
    local.no_process_left(within_s=10)
    assert not list((tmp_path / ".autotune-slurm").iterdir())


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmCluster]:
    """A real one."""
    if why_not():
        pytest.skip(why_not())
    with SlurmCluster() as found:
        yield found


@pytest.mark.cluster
@needs_submitit
def test_a_job_that_slurm_cancels_in_the_middle_of_a_probe_is_another_one_later(
    slurm: SlurmCluster, tmp_path: Path
) -> None:
    real = tool(tmp_path, slurm.variables, "cpus_per_task=1")
    real.hold(2, 2)
    with real.running("--workers", "2") as search:
        real.wait_until_held(search)
        jobs = slurm.ask("squeue", "--noheader", "--format=%i").split()
        assert len(jobs) == 2
        slurm.ask("scancel", *jobs)
        real.let_go()
        assert search.wait(300) == 0, real.stderr
    assert (tmp_path / "stdout").read_text() == "2\n"
    assert "preempted, cancelled or out of time" in real.stderr
    record, probes = real.search()
    lost = [one for one in probes if one.failure and one.failure.cause is Cause.LOST]
    assert record.state is SearchState.ANSWERED and lost
    assert all(one.outcome is Outcome.UNRELIABLE for one in lost)
    assert not any(one.outcome in (Outcome.OUT_OF_MEMORY, Outcome.HOST_OUT_OF_MEMORY) for one in probes)
    wait_for(lambda: not slurm.ask("squeue", "--noheader"), "the end of all jobs")


@pytest.mark.cluster
@needs_submitit
def test_a_job_killed_outright_is_missed_as_well(slurm: SlurmCluster, tmp_path: Path) -> None:
    real = tool(tmp_path, slurm.variables, "cpus_per_task=1")
    real.hold(2, 2)
    with real.running() as search:
        real.wait_until_held(search)
        slurm.ask("scancel", "--signal=KILL", "--full", *slurm.ask("squeue", "--noheader", "--format=%i").split())
        real.let_go()
        assert search.wait(300) == 0, real.stderr
    assert "was lost: job" in real.stderr
    assert real.search()[0].state is SearchState.ANSWERED


class Echo:
    """Stands in for a host."""

    def __init__(self, say: Any) -> None:
        self._say = say

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        self._say(f"asked for {request['kind']}")
        return {"kind": "answer", "of": request["kind"]}

    def close(self) -> None: ...


@pytest.fixture
def mail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Mailbox, threading.Thread, list[str]]]:
    """A mailbox, and a worker at its other end in a thread, where no signals arrive."""
    monkeypatch.setattr(mailboxes, "Host", Echo)
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)
    box, ends = Mailbox(tmp_path / "mail"), list[str]()
    box.make()
    worker = threading.Thread(target=lambda: ends.append(mailboxes.serve(str(box.folder))))
    yield box, worker, ends
    worker.join(30)
    assert not worker.is_alive()


def test_letters_are_answered_in_order_until_the_tool_says_stop(
    mail: tuple[Mailbox, threading.Thread, list[str]],
) -> None:
    box, worker, ends = mail
    caller = Caller(box)
    with Beat(box, "tool"):
        worker.start()
        for kind in ("open", "probe"):
            caller.ask({"kind": kind})
            assert wait_for(caller.answer, "an answer") == {"kind": "answer", "of": kind}
        assert caller.note() == "asked for open" and caller.note() == "asked for probe" and caller.note() == ""
        assert caller.started() and not caller.gone()
        caller.stop()
        worker.join(30)
    assert ends == ["it was told to stop"] and caller.gone() == "it was told to stop"


def test_a_worker_that_nobody_asks_any_more_ends_and_so_does_one_that_is_started_again(
    mail: tuple[Mailbox, threading.Thread, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    box, worker, ends = mail
    monkeypatch.setattr(mailboxes, "SILENCE_S", 0.0)
    worker.start()
    worker.join(30)
    assert ends == ["nobody asks any more"]
    assert mailboxes.serve(str(box.folder)) == "it was started a second time"


def test_a_worker_that_is_not_heard_of_for_long_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    box = Mailbox(tmp_path / "mail")
    box.make()
    caller = Caller(box)
    assert caller.gone() == ""  # it waits in the queue
    box.write("started", "node7")
    box.write("beat-worker", "1")
    assert caller.gone() == ""
    monkeypatch.setattr(mailboxes, "SILENCE_S", -1.0)
    assert caller.gone().startswith("nothing was heard of it for")
    box.write("beat-worker", "2")
    box.write("ended", "it was stopped by SIGTERM")
    assert caller.gone() == "it was stopped by SIGTERM"


def test_a_mailbox_is_for_its_user_alone_and_reads_no_half_letter(tmp_path: Path) -> None:
    box = Mailbox(tmp_path / "mail")
    box.make()
    assert box.folder.stat().st_mode & 0o777 == 0o700
    box.write("answer-1", {"kind": "answer"})
    assert box.take("answer-1") == {"kind": "answer"} and box.take("answer-1") is None
    box.write("answer-1", "7")
    assert box.take("answer-1") == {"kind": "unknown"}
    assert [path.name for path in box.folder.iterdir()] == []
