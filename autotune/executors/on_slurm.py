"""A worker in a job of Slurm: a process of this host that submits the job with submitit and hands requests on by files.

The job is a worker for the whole search, so that its place in the queue is waited for once and the workload stays loaded.
Needs a folder that this host and the jobs share. The only file that knows submitit.
"""

import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autotune.executors.host import TOKEN, Message, root, serve
from autotune.executors.mailbox import POLL_S, Beat, Caller, Mailbox
from autotune.executors.mailbox import serve as serve_mailbox
from autotune.probe.wire import Channel

FOLDER = ".autotune-slurm"
"""Where requests, answers and logs of jobs lie, in the working directory, unless the option ``folder`` names another."""
_LOOK_S = 5.0
"""Between two questions to Slurm whether the job is there."""
_STOP_S = 10.0
_MINUTES = 240
"""Time limit of a job, where none is given."""
_OF_SLURM = ("partition", "account", "qos", "constraint")


def main(descriptor: int, options: Mapping[str, str]) -> None:
    """Serve the tool that started this process."""
    channel = Channel(descriptor, TOKEN)
    job = _Job(options, channel)
    serve(job.answer, channel, job.close)


class _Job:
    """One job and its mailbox."""

    def __init__(self, options: Mapping[str, str], channel: Channel) -> None:
        self._options = options
        self._channel = channel
        self._folder = Path(options.get("folder", FOLDER)).absolute() / uuid.uuid4().hex[:12]
        self._mailbox = Mailbox(self._folder / "mail")
        self._caller = Caller(self._mailbox)
        self._beat: Beat | None = None
        self._job: Any = None
        self._looked_s = time.monotonic()

    def answer(self, request: Message) -> Message:
        """What the worker in the job says, or that it is lost; the process ends after that."""
        import submitit

        try:
            if self._job is None:
                self._submit(request)
        except (OSError, RuntimeError, submitit.core.utils.FailedJobError, subprocess.CalledProcessError) as error:
            return {"kind": "lost", "why": f"the job could not be submitted: {error}", "over": True}
        self._caller.ask(request)
        while True:
            found = self._caller.answer()
            if found is not None:
                return found
            while note := self._caller.note():
                self._channel.send("note", text=note)
            why = self._caller.gone() or self._gone()
            if why:
                last = self._caller.answer()  # it may have answered just before
                return last or {"kind": "lost", "why": f"job {self._job.job_id}: {why}", "over": True}
            time.sleep(POLL_S)

    def close(self) -> None:
        """End the job, and remove its files."""
        if self._job is None:
            return
        self._caller.stop()
        deadline = time.monotonic() + _STOP_S
        while self._caller.started() and not self._caller.gone() and time.monotonic() < deadline:
            if self._gone():
                break
            time.sleep(POLL_S)
        if not self._caller.gone():
            self._job.cancel()
        if self._beat is not None:
            self._beat.__exit__()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _submit(self, request: Message) -> None:
        import submitit

        self._folder.mkdir(mode=0o700, parents=True)
        self._mailbox.make()
        self._beat = Beat(self._mailbox, "tool")
        self._beat.__enter__()
        # The job's interpreter is this one; that finds autotune where this process found it.
        os.environ["PYTHONPATH"] = os.pathsep.join(path for path in (os.environ.get("PYTHONPATH"), root()) if path)
        cluster = self._options.get("cluster", "slurm")
        executor = submitit.AutoExecutor(folder=self._folder / "logs", cluster=cluster)
        executor.update_parameters(name="autotune", **self._parameters(request, cluster))
        self._job = executor.submit(serve_mailbox, str(self._mailbox.folder))
        self._channel.send("note", text=f"job {self._job.job_id} was submitted for a worker (logs in {self._folder})")

    def _parameters(self, request: Message, cluster: str) -> dict[str, Any]:
        numbers = {
            name: int(value)
            for name, value in self._options.items()
            if name in ("timeout_min", "mem_gb", "cpus_per_task", "gpus_per_node")
        }
        on_cpu = request.get("plan", {}).get("device") == "cpu"
        found: dict[str, Any] = {"timeout_min": _MINUTES, "tasks_per_node": 1, "nodes": 1, **numbers}
        if not on_cpu:
            found.setdefault("gpus_per_node", request.get("plan", {}).get("ranks", 1))
        if cluster != "slurm":
            return {name: value for name, value in found.items() if name in ("timeout_min", "gpus_per_node")}
        for name in _OF_SLURM:
            if name in self._options:
                found[f"slurm_{name}"] = self._options[name]
        # Started again under its old number it would answer to nobody.
        return {**found, "slurm_additional_parameters": {"no_requeue": True}}

    def _gone(self) -> str:
        """What the batch system says of a job that is no more; asked every few seconds."""
        now = time.monotonic()
        if now - self._looked_s < _LOOK_S:
            return ""
        self._looked_s = now
        if self._options.get("cluster", "slurm") != "slurm":
            return "its process has ended" if self._job.done() else ""
        asked = subprocess.run(
            ["squeue", "--noheader", "--format=%T", f"--jobs={self._job.job_id}"],
            capture_output=True,
            text=True,
            check=False,
        )
        state = asked.stdout.strip()
        unknown = asked.returncode != 0 and "Invalid job id" in asked.stderr
        if asked.returncode != 0 and not unknown:
            return ""  # the controller does not answer: the job may live all the same
        over = unknown or state in _OVER
        return f"Slurm says {state or 'that it is no more'}" if over or not state else ""


_OVER = frozenset(
    {"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT"}
)
"""States of a job that runs no more."""
