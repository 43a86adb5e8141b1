"""The process between the tool and its probes: starts them, watches the clock, kills whole trees, survives the tool.

    tool ──stdin/stdout──> guardian ──> zygote          (torch and the user's file loaded, never touches the device)
                              ├───────> probe process   (forked by the zygote and handed over, or spawned)
                              └───────> orphans of any of them (this process is their subreaper on Linux)

When the tool ends, in whatever way, standard input ends here; then everything below is killed and this process ends.
It imports neither torch nor the user's file, so nothing of the user's can stop it. One probe at a time.

A probe is one process, or several that train together (ranks). PyTorch's own launcher, ``elastic_launch``, is not used
for these: its agent imports torch and runs threads of its own before it starts them, so that it can neither be this
process nor fork what is loaded already, and all that is left of a rank is an exit code and a file. Here each rank has its
own answer pipe, which says where it was and what it held; the first to fail ends the others within seconds, though they
wait in a collective; and all of them end with the tool.
"""

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from autotune.probe import host, linux
from autotune.probe.interpreter import interpreter, limited
from autotune.probe.job import Job, reap
from autotune.probe.order import Rank, Request
from autotune.probe.strays import KILL_GRACE_S, kill_strays, reap_strays
from autotune.probe.tool import TICK_S, Tool, ToolIsGone
from autotune.probe.wire import Decoder, Message, new_token

TERM_GRACE_S = 2.0
"""Between TERM and KILL of a process group that passed its deadline."""
EXIT_GRACE_S = 2.0
"""For a process that has given its last message to be gone."""
ENDING_GRACE_S = 10.0
"""For a command of the user's that has only said that it is about to end by itself: its exit code tells more."""
PEER_GRACE_S = 1.0
"""For the other ranks, once one has failed, to say what they saw: most lose contact with it at once."""
_CANNOT_START = 127 << 8
"""Wait status of a command that could not be started, as shells have it."""
_LONGEST_REPLY = 1 << 12


class Guardian:
    """Serves the tool's requests until the tool is gone."""

    def __init__(self, tool: Tool) -> None:
        self._tool = tool
        self._spared: set[int] = set()
        """Processes the user's file started while it was imported; they live as long as the zygote."""
        self._zygote: Job | None = None
        self._control: socket.socket | None = None

    def serve(self) -> None:
        """Answer requests one by one.

        Raises:
            ToolIsGone: the usual end.
        """
        while True:
            request = self._tool.next_request(self._reap_strays)
            started = time.monotonic()
            kills = host.oom_kills()
            if request.load:
                jobs = [self._load(request)]
            elif request.command:
                jobs = [self._command(request)]
            elif request.fork and self._control is not None:
                jobs = self._fork(request)
            else:
                self._end_zygote()
                jobs = [
                    self._spawn(request, rank, "autotune.probe.worker", ("answer",), None) for rank in request.ranks
                ]
                self._watch(jobs, request.deadline_s, begin_s=request.begin_s)
            common: Message = {
                "zygote": self._zygote is not None,
                "host_oom_kills": host.oom_kills_since(kills, host.oom_kills()),
                "seconds": time.monotonic() - started,
            }
            first, *peers = ({**job.report(), **common} for job in jobs)
            self._tool.reply({**first, "peers": peers})

    def _reap_strays(self) -> None:
        if self._zygote is not None:
            reap_strays(self._zygote.pid)

    def _load(self, request: Request) -> Job:
        """Start the zygote and wait until it has loaded the user's file; it stays only if it may be forked."""
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            job = self._spawn(request, request.ranks[0], "autotune.probe.zygote", ("ready", "answer"), theirs)
        self._watch([job], request.deadline_s, keep=True)
        if job.status is None and job.answer is not None and job.answer.get("fork_safe") is True:
            self._zygote, self._control = job, mine
            self._spared = {child.pid for child in psutil.Process().children() if child.pid != job.pid}
            return job
        mine.close()
        if job.status is None:
            self._end([job])
        return job

    def _command(self, request: Request) -> Job:
        """A command of the user's, in its own process group; all that it starts ends with it."""
        pipe = os.open(request.pipe, os.O_RDWR | os.O_NONBLOCK)  # for writing as well: no writer's end is the end
        limit = request.data_limit_bytes
        try:
            with open(request.stdout, "ab") as out, open(request.stderr, "ab") as err:
                child = subprocess.Popen(
                    limited(request.command, limit) if limit is not None else request.command,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    env=request.environment,
                    cwd=request.directory,
                    process_group=0,
                )
        except OSError as error:  # no such program, or one that may not be run: as the shell would say it
            Path(request.stderr).write_text(f"{error.filename or request.command[0]}: {error.strerror}\n")
            os.close(pipe)
            return Job(0, 0, pipe, Decoder(request.token), ("answer",), status=_CANNOT_START)
        child.returncode = 0  # reaped here by os.waitpid, not by subprocess
        job = Job(child.pid, child.pid, pipe, Decoder(request.token), ("answer",), (request.stdout, request.stderr))
        self._watch([job], request.deadline_s)
        return job

    def _spawn(
        self, request: Request, rank: Rank, module: str, last: tuple[str, ...], control: socket.socket | None
    ) -> Job:
        """A fresh interpreter in its own process group, answer pipe and control socket passed by descriptor."""
        reading, writing = os.pipe()
        token = new_token()
        fds = [writing] if control is None else [writing, control.fileno()]
        call = f"from {module} import main; main({rank.order!r}, {token!r}, {fds!r}, {os.getpid()})"
        with open(rank.stdout, "ab") as out, open(rank.stderr, "ab") as err:
            child = subprocess.Popen(
                interpreter(call),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={**request.environment, **rank.variables},
                pass_fds=fds,
                process_group=0,
            )
        child.returncode = 0  # reaped here by os.waitpid, not by subprocess
        os.close(writing)
        return Job(child.pid, child.pid, reading, Decoder(token), last, (rank.stdout, rank.stderr))

    def _fork(self, request: Request) -> list[Job]:
        """Have the zygote fork each rank; the children become children of this process."""
        jobs: list[Job] = []
        until = time.monotonic() + request.deadline_s
        for rank in request.ranks:
            job = self._fork_rank(rank, until)
            if job is None:
                zygote = self._zygote
                assert zygote is not None
                self._end_zygote()  # and with it the ranks that it has forked
                self._end(jobs)
                return [zygote]
            jobs.append(job)
        self._watch(jobs, request.deadline_s, begin_s=request.begin_s)
        return jobs

    def _fork_rank(self, rank: Rank, until: float) -> Job | None:
        """One child of the zygote; None if that is dead or hangs."""
        assert self._control is not None and self._zygote is not None
        reading, writing = os.pipe()
        token = new_token()
        try:
            wanted = {"order": rank.order, "stdout": rank.stdout, "stderr": rank.stderr}
            line = json.dumps({**wanted, "token": token, "guardian": os.getpid()}).encode() + b"\n"
            socket.send_fds(self._control, [line], [writing])
            pid, group = self._forked(json.loads(self._line(self._control, until)))
        except (OSError, ValueError, RecursionError) as error:  # it is dead, hangs, or the user's file wrote there
            os.close(reading)
            self._zygote.answer, self._zygote.timed_out = None, isinstance(error, TimeoutError)
            return None
        finally:
            os.close(writing)
        return Job(pid, group, reading, Decoder(token), ("answer",), (rank.stdout, rank.stderr))

    def _forked(self, reply: object) -> tuple[int, int]:
        """The process that the zygote says it has forked, and its group.

        Raises:
            ValueError: it is not below this process: what is signalled and waited for must be its own.
        """
        pid = reply.get("pid") if isinstance(reply, dict) else None
        if type(pid) is not int or pid < 2:
            raise ValueError("no process id")
        try:
            group, parents = os.getpgid(pid), psutil.Process(pid).parents()
        except (OSError, OverflowError, psutil.NoSuchProcess) as error:
            raise ValueError(f"there is no process {pid}") from error
        if group == os.getpgrp() or all(parent.pid != os.getpid() for parent in parents):
            raise ValueError(f"process {pid} is none of this one's")
        return pid, group

    def _end_zygote(self) -> None:
        """Kill the zygote, and what the user's file started in it: a fresh interpreter wants the same ports and files."""
        if self._zygote is None or self._control is None:
            return
        self._control.close()
        zygote, self._zygote, self._control, self._spared = self._zygote, None, None, set()
        self._end([zygote])

    def _watch(
        self, jobs: Sequence[Job], deadline_s: float, *, begin_s: float | None = None, keep: bool = False
    ) -> None:
        """Read the messages of a probe's processes until all have ended, whatever that takes.

        Args:
            jobs: its ranks; once one has failed, the others are ended as well.
            deadline_s: time they have, or have from their first marks on where there is a ``begin_s``.
            begin_s: until their first marks.
            keep: return once the only one has answered that it is ready.
        """
        deadline = time.monotonic() + (deadline_s if begin_s is None else begin_s)
        killed_at: float | None = None
        kill_at: float | None = None
        stop_at: float | None = None
        while any(job.status is None for job in jobs):
            self._read(jobs, TICK_S if not all(job.done for job in jobs) else 0.01)
            self._tool.look()
            for job in jobs:
                job.look()
            now = time.monotonic()
            if all(job.status is not None for job in jobs):
                break
            if begin_s is not None and all(job.marks is not None for job in jobs):
                begin_s, deadline = None, now + deadline_s
            if stop_at is None and any(job.failed for job in jobs):
                stop_at = now + PEER_GRACE_S
            if killed_at is not None:
                if now >= killed_at + KILL_GRACE_S:
                    break  # traced or stuck in the kernel: _end() deals with what holds it
            elif all(job.done for job in jobs):
                answers = [job.answer for job in jobs if job.answer is not None]
                if keep and answers[0]["kind"] == "ready":
                    return
                ending = any(answer.get("ending") for answer in answers)
                kill_at = kill_at or now + (ENDING_GRACE_S if ending else EXIT_GRACE_S)
            elif kill_at is None and (now >= deadline or (stop_at is not None and now >= stop_at)):
                for job in jobs:
                    if not job.done:
                        job.timed_out, job.stopped = stop_at is None, stop_at is not None
                        job.signal(signal.SIGTERM)
                kill_at = now + TERM_GRACE_S
            if killed_at is None and kill_at is not None and now >= kill_at:
                for job in jobs:
                    job.cut_short = job.answer is not None
                    job.signal(signal.SIGKILL)
                killed_at = now
        self._end(jobs)

    def _read(self, jobs: Sequence[Job], wait_s: float) -> None:
        """Take what is on the answer pipes, waiting at most ``wait_s``."""
        pipes = {job.pipe: job for job in jobs if not job.silent}
        if any(job.silent and job.status is None for job in jobs):
            wait_s = min(wait_s, 0.005)  # nothing more will come, but its end
        ready, _, _ = select.select([*pipes, 0], [], [], wait_s)
        for pipe in ready:
            if pipe in pipes:
                data = os.read(pipe, 1 << 16)
                pipes[pipe].silent = not data
                pipes[pipe].take(data)

    def _end(self, jobs: Sequence[Job]) -> None:
        """Kill what is left of their trees, reap them, take the last messages."""
        for job in jobs:
            job.signal(signal.SIGKILL)
        kill_strays(self._spared | ({self._zygote.pid} if self._zygote else set()))
        for job in jobs:
            if job.status is None:
                job.status = reap(job.pid) or 0  # 0: given up, reported as a process without an answer
            os.set_blocking(job.pipe, False)
            with contextlib.suppress(BlockingIOError):  # a stray holds the writing end; nothing more was said
                while data := os.read(job.pipe, 1 << 16):
                    job.take(data)
            os.close(job.pipe)

    def _line(self, connection: socket.socket, until: float) -> bytes:
        """One line from the zygote, waited for until this instant on ``time.monotonic``.

        Raises:
            ConnectionError: it closed the connection.
            TimeoutError: it did not answer in time.
            ToolIsGone: the tool ended meanwhile.
        """
        data = b""
        while not data.endswith(b"\n"):
            if time.monotonic() > until:
                raise TimeoutError("the zygote does not answer")
            self._tool.look()
            ready, _, _ = select.select([connection.fileno(), 0], [], [], TICK_S)
            if connection.fileno() in ready:
                part = connection.recv(1 << 12)
                if not part or len(data) > _LONGEST_REPLY:
                    raise ConnectionError("the zygote closed its control socket, or the user's file writes to it")
                data += part
        return data

    def kill_everything(self) -> None:
        """Kill and reap every descendant."""
        kill_strays(())


def main(directory: str, tool: int, report: int) -> None:
    """Entry point of the guardian process.

    Args:
        directory: working files of this search, removed at the end (the tool may not live to do it).
        tool: process id of the tool, whose end is this process's end.
        report: descriptor to report on; not standard output, where a ``sitecustomize`` may print.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # The tool decides; its end reaches us as end-of-file. A handler, and not SIG_IGN, which children would inherit.
        signal.signal(number, lambda *_: None)
    os.set_inheritable(report, False)
    linux.become_subreaper()
    guardian = Guardian(Tool(tool, report))
    try:
        guardian.serve()
    except (ToolIsGone, BrokenPipeError):
        pass
    finally:
        guardian.kill_everything()
        shutil.rmtree(directory, ignore_errors=True)
