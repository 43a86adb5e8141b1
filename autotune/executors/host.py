"""The far side: a worker near its device. It holds the workload loaded and answers one request at a time.

The same for all executors: as a process of this host (``main``), within a job of Slurm (``mailbox``) or an actor of Ray.
Each probe runs in a process of its own, forked from the zygote of this worker's launcher, as in a search on one device.
"""

import json
import queue
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from autotune.errors import AutotuneError, EnvironmentTrouble
from autotune.executors.documents import error_document, plain, read, result_document
from autotune.model import Budget, Plan, Question, Source
from autotune.probe import nvml
from autotune.probe.budget import make_budget
from autotune.probe.command.launcher import CommandLauncher
from autotune.probe.host import host_limit
from autotune.probe.launcher import Launcher
from autotune.probe.turns import Turns
from autotune.probe.wire import Channel
from autotune.probe.workplace import Workplace

Message = dict[str, Any]


class Host:
    """Answers requests; ``close`` ends every process below."""

    def __init__(self, say: Callable[[str], None]) -> None:
        """``say`` is told what people should know meanwhile."""
        self._say = say
        self._laboratory: Launcher | CommandLauncher | None = None
        self._turns: Turns | None = None
        self._own: Workplace | None = None

    def close(self) -> None:
        """End every process and remove the working files."""
        if self._laboratory is not None:
            self._laboratory.close()
        if self._own is not None:
            self._own.remove()

    def answer(self, request: Message) -> Message:
        """Do what is asked; what goes wrong is an answer as well, unless it is an error of this program."""
        try:
            match request.get("kind"):
                case "open":
                    return self._open(request)
                case "probe":
                    return self._probe(request)
                case other:
                    raise EnvironmentTrouble(
                        f"a worker was asked for {other!r:.60}, which it does not know",
                        hint="use the same version of autotune on all workers",
                    )
        except AutotuneError as error:
            return {"kind": "refused", "error": error_document(error)}

    def _open(self, request: Message) -> Message:
        plan = read(Plan, request.get("plan"), "the plan")
        left_s = read(float, request["left_s"], "the time left") if request.get("left_s") is not None else None
        buckets = read(tuple[int, ...], request.get("length_buckets"), "the list of buckets")
        self._turns = Turns(
            wait_s=plan.device_wait_s,
            until=_until(left_s),
            say=self._say,
            host_alone=plan.memory_limit_bytes is None,
            ranks=plan.ranks,
        )
        self._laboratory = self._launcher(plan, self._turns)
        self._laboratory.preload(plan.device)
        workload, machine = self._laboratory.describe(plan.device, plan.multiple_of, buckets)
        with self._laboratory.turn():  # else another search's probe would count as what others hold
            used = workload.device_used_bytes
            others = [nvml.used_bytes(machine.device_uuid) if used is None else used]
            others += map(nvml.used_bytes, machine.peers)
            budget = make_budget(
                machine,
                memory_limit_bytes=plan.memory_limit_bytes,
                others_bytes=max((held for held in others if held is not None), default=None),
                host=host_limit(),
                ranks=plan.ranks,
            )
        return {
            "kind": "ready",
            "host": socket.gethostname(),
            "workload": plain(workload),
            "machine": plain(machine),
            "budget": plain(budget),
        }

    def _launcher(self, plan: Plan, turns: Turns) -> Launcher | CommandLauncher:
        source = self._here(plan.source)
        if source.command:
            return CommandLauncher(source, timeout_s=plan.timeout_s, seed=plan.seed, say=self._say, turns=turns)
        return Launcher(source, timeout_s=plan.timeout_s, seed=plan.seed, say=self._say, turns=turns, ranks=plan.ranks)

    def _probe(self, request: Message) -> Message:
        assert self._laboratory is not None and self._turns is not None, "opened first"
        question = read(Question, request.get("question"), "the question")
        budget = read(Budget, request.get("budget"), "the budget")
        reserve = read(int, request.get("reserve_bytes"), "the reserve")
        if request.get("left_s") is not None:
            self._turns.end_at(_until(read(float, request["left_s"], "the time left")))
        return {"kind": "answer", "result": result_document(self._laboratory.probe(question, budget, reserve))}

    def _here(self, source: Source) -> Source:
        """Live objects are copied: a launcher works in the folder of their file, and removes it."""
        if not source.pickle_path:
            return source
        self._own = Workplace()
        path = self._own.path / "workload.pkl"
        try:
            shutil.copyfile(source.pickle_path, path)
        except OSError as error:
            raise EnvironmentTrouble(
                f"the live objects to be trained lie in {source.pickle_path}, which this worker cannot read:"
                f" {error.strerror}",
                hint="put them into a file and give its name, model.py:NAME, where workers are on other hosts",
            ) from error
        return replace(source, pickle_path=str(path))


def _until(left_s: float | None) -> float | None:
    return None if left_s is None else time.monotonic() + left_s


def main(descriptor: int) -> None:
    """Serve the tool that started this process: requests as lines on standard input, answers on a pipe."""
    channel = Channel(descriptor, TOKEN)
    host = Host(lambda text: channel.send("note", text=text))
    serve(host.answer, channel, host.close)


TOKEN = "worker"
"""Marks messages on the pipe. It is no secret: no user's code runs in these processes."""


def serve(answer: Callable[[Message], Message], channel: Channel, close: Callable[[], None]) -> None:
    """Answer until standard input ends, which is when the tool has: then whatever is being done is given up."""
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    lines = Lines()
    try:
        while (request := lines.next()) is not None:
            reply = answer(request)
            channel.send(reply.pop("kind"), **reply)
            if reply.get("over"):
                break
    finally:
        lines.expected = True
        close()


class Lines:
    """Standard input, read by a thread of its own, so that its end is noticed also in the middle of a probe."""

    def __init__(self) -> None:
        self._lines: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self.expected = False
        """Whether the end of input finds nobody at work any more."""
        self._busy = False
        threading.Thread(target=self._read, daemon=True).start()

    def next(self) -> Message | None:
        """The next request; None at the end."""
        self._busy = False
        found = self._lines.get()
        self._busy = found is not None
        return found

    def _read(self) -> None:
        for line in sys.stdin.buffer:
            self._lines.put(json.loads(line))
        self._lines.put(None)
        if self._busy and not self.expected:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)


def _stop(number: int, frame: object) -> None:
    signal.signal(number, signal.SIG_IGN)
    raise SystemExit(128 + number)


def root() -> str:
    """The folder that autotune is imported from, for processes elsewhere that have to find it as well."""
    return str(Path(__file__).resolve().parents[2])
