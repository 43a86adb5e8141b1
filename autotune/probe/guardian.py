"""The process between the tool and its probes: starts them, watches the clock, kills whole trees, survives the tool.

    tool ──stdin/stdout──> guardian ──> zygote          (torch and the user's file loaded, never touches the device)
                              ├───────> probe process   (forked by the zygote and handed over, or spawned)
                              └───────> orphans of any of them (this process is their subreaper on Linux)

When the tool ends, in whatever way, standard input ends here; then everything below is killed and this process ends.
It imports neither torch nor the user's file, so nothing of the user's can stop it. One job at a time.
"""

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from autotune.probe import host, linux
from autotune.probe.order import Request
from autotune.probe.wire import Decoder, Message, new_token

TERM_GRACE_S = 2.0
"""Between TERM and KILL of a process group that passed its deadline."""
EXIT_GRACE_S = 2.0
"""For a process that has given its last message to be gone."""
ENDING_GRACE_S = 10.0
"""For a command of the user's that has only said that it is about to end by itself: its exit code tells more."""
KILL_GRACE_S = 2.0
"""For a killed process to be reapable; one that something traces or holds is given up after it."""
LOG_LIMIT_BYTES = 64 << 20
"""A log that grows beyond this is started again: only its tail is kept anyway."""
QUIT = b"quit\n"
"""What the tool sends when it is done; end-of-file alone would be missed while some fork of the tool holds the pipe."""
_CANNOT_START = 127 << 8
"""Wait status of a command that could not be started, as shells have it."""
_LONGEST_REPLY = 1 << 12
_TICK_S = 0.2  # how often a lost parent is looked for beside end-of-file


class ToolIsGone(Exception):
    """Raised inside the guardian when its parent has ended or closed the connection."""


@dataclass(slots=True)
class Job:
    """One process being watched."""

    pid: int
    group: int
    """Process group to signal."""
    pipe: int
    """Reading end of its answer pipe."""
    decoder: Decoder
    last_kinds: tuple[str, ...]
    """The job's answer is complete with any of these messages."""
    logs: tuple[str, ...] = ()
    marks: Message | None = None
    """Latest progress mark."""
    answer: Message | None = None
    status: int | None = None
    """Wait status once reaped."""
    timed_out: bool = False
    cut_short: bool = False
    """Killed after its answer: how it ended is our doing and says nothing."""
    leftovers: int = 0
    """Descendants that were still alive when the process had ended."""
    started: float = field(default_factory=time.monotonic)


class Guardian:
    """Serves the tool's requests until the tool is gone."""

    def __init__(self, tool: int, report: int) -> None:
        self._tool = tool
        self._report = report
        self._spared: set[int] = set()
        """Processes the user's file started while it was imported; they live as long as the zygote."""
        self._zygote: Job | None = None
        self._control: socket.socket | None = None
        self._input = b""

    def serve(self) -> None:
        """Answer requests one by one.

        Raises:
            ToolIsGone: the usual end.
        """
        while True:
            request = self._next_request()
            started = time.monotonic()
            kills = host.oom_kills()
            if request.load:
                job = self._load(request)
            elif request.command:
                job = self._command(request)
            elif request.fork and self._control is not None:
                job = self._fork(request)
            else:
                self._end_zygote()
                job = self._spawn(request, "autotune.probe.worker", ("answer",), None)
                self._watch(job, request.deadline_s, begin_s=request.begin_s)
            self._reply(
                {
                    "pid": job.pid,
                    "zygote": self._zygote is not None,
                    "answer": job.answer,
                    "mark": job.marks,
                    "exit_code": None if job.status is None or job.cut_short else _exit_code(job.status),
                    "signal": None if job.status is None or job.cut_short else _signal(job.status),
                    "timed_out": job.timed_out,
                    "leftovers": job.leftovers,
                    "garbage_bytes": job.decoder.garbage_bytes,
                    "host_oom_kills": host.oom_kills() - kills,
                    "seconds": time.monotonic() - started,
                }
            )

    def _load(self, request: Request) -> Job:
        """Start the zygote and wait until it has loaded the user's file; it stays only if it may be forked."""
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            job = self._spawn(request, "autotune.probe.zygote", ("ready", "answer"), theirs)
        self._watch(job, request.deadline_s, keep=True)
        if job.status is None and job.answer is not None and job.answer.get("fork_safe") is True:
            self._zygote, self._control = job, mine
            self._spared = {child.pid for child in psutil.Process().children() if child.pid != job.pid}
            return job
        mine.close()
        if job.status is None:
            self._end(job)
        return job

    def _command(self, request: Request) -> Job:
        """A command of the user's, in its own process group; all that it starts ends with it."""
        pipe = os.open(
            request.pipe, os.O_RDWR | os.O_NONBLOCK
        )  # also for writing: else every writer's end were the end
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
            Path(request.stderr).write_text(f"{request.command[0]}: {error.strerror}\n")
            os.close(pipe)
            return Job(0, 0, pipe, Decoder(request.token), ("answer",), status=_CANNOT_START)
        child.returncode = 0  # reaped here by os.waitpid, not by subprocess
        job = Job(child.pid, child.pid, pipe, Decoder(request.token), ("answer",), (request.stdout, request.stderr))
        self._watch(job, request.deadline_s)
        return job

    def _spawn(self, request: Request, module: str, last: tuple[str, ...], control: socket.socket | None) -> Job:
        """A fresh interpreter in its own process group, answer pipe and control socket passed by descriptor."""
        reading, writing = os.pipe()
        token = new_token()
        fds = [writing] if control is None else [writing, control.fileno()]
        call = f"from {module} import main; main({request.order!r}, {token!r}, {fds!r}, {os.getpid()})"
        with open(request.stdout, "ab") as out, open(request.stderr, "ab") as err:
            child = subprocess.Popen(
                interpreter(call),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=request.environment,
                pass_fds=fds,
                process_group=0,
            )
        child.returncode = 0  # reaped here by os.waitpid, not by subprocess
        os.close(writing)
        logs = (request.stdout, request.stderr)
        return Job(child.pid, child.pid, reading, Decoder(token), last, logs)

    def _fork(self, request: Request) -> Job:
        """Have the zygote fork; the child becomes a child of this process."""
        assert self._control is not None and self._zygote is not None
        reading, writing = os.pipe()
        token = new_token()
        try:
            wanted = {"order": request.order, "stdout": request.stdout, "stderr": request.stderr}
            line = json.dumps({**wanted, "token": token, "guardian": os.getpid()}).encode() + b"\n"
            socket.send_fds(self._control, [line], [writing])
            pid, group = self._forked(json.loads(self._line(self._control, request.deadline_s)))
        except (OSError, ValueError, RecursionError) as error:  # it is dead, hangs, or the user's file wrote there
            os.close(reading)
            job = self._zygote
            job.answer, job.timed_out = None, isinstance(error, TimeoutError)
            self._end_zygote()
            return job
        finally:
            os.close(writing)
        logs = (request.stdout, request.stderr)
        job = Job(pid, group, reading, Decoder(token), ("answer",), logs)
        self._watch(job, request.deadline_s, begin_s=request.begin_s)
        return job

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
        self._end(zygote)

    def _watch(self, job: Job, deadline_s: float, *, begin_s: float | None = None, keep: bool = False) -> None:
        """Read a job's messages until it has ended, whatever that takes.

        Args:
            job: what to watch.
            deadline_s: time it has, or has from its first mark on where there is a ``begin_s``.
            begin_s: until its first mark.
            keep: return once it has answered.
        """
        deadline = time.monotonic() + (deadline_s if begin_s is None else begin_s)
        killed_at: float | None = None
        kill_at: float | None = None
        while job.status is None:
            self._read(job, _TICK_S if job.answer is None else 0.01)
            self._look_for_tool()
            _shorten(job.logs)
            job.status = _reap(job.pid)
            now = time.monotonic()
            if job.status is not None:
                break
            if begin_s is not None and job.marks is not None:
                begin_s, deadline = None, now + deadline_s
            if killed_at is not None:
                if now >= killed_at + KILL_GRACE_S:
                    break  # traced or stuck in the kernel: _end() deals with what holds it
            elif job.answer is not None and keep and job.answer["kind"] == "ready":
                return
            elif job.answer is not None:
                kill_at = kill_at or now + (ENDING_GRACE_S if job.answer.get("ending") else EXIT_GRACE_S)
            elif kill_at is None and now >= deadline:
                job.timed_out = True
                _signal_job(job, signal.SIGTERM)
                kill_at = now + TERM_GRACE_S
            if killed_at is None and kill_at is not None and now >= kill_at:
                job.cut_short = job.answer is not None
                _signal_job(job, signal.SIGKILL)
                killed_at = now
        self._end(job)

    def _read(self, job: Job, wait_s: float) -> None:
        """Take what is on the answer pipe, waiting at most ``wait_s``."""
        ready, _, _ = select.select([job.pipe, 0], [], [], wait_s)
        if job.pipe not in ready:
            return
        data = os.read(job.pipe, 1 << 16)
        if not data:  # closed by the job: nothing more will come, so do not spin on it
            time.sleep(0.005)
        self._take(job, data)

    def _end(self, job: Job) -> None:
        """Kill what is left of a job's tree, reap it, take the last messages."""
        _signal_job(job, signal.SIGKILL)
        job.leftovers = self._kill_strays()
        if job.status is None:
            job.status = _reap(job.pid) or 0  # 0: given up, reported as a process without an answer
        os.set_blocking(job.pipe, False)
        with contextlib.suppress(BlockingIOError):  # a stray holds the writing end; nothing more was said
            while data := os.read(job.pipe, 1 << 16):
                self._take(job, data)
        os.close(job.pipe)

    def _take(self, job: Job, data: bytes) -> None:
        for message in job.decoder.feed(data):
            if message["kind"] in job.last_kinds:
                job.answer = job.answer or message
            else:
                job.marks = message

    def _kill_strays(self) -> int:
        """Kill every descendant outside the zygote's tree, then reap what can be; return how many there were.

        All are killed before any is waited for: one may trace another, and a chain of forks only dies when it is
        overtaken.
        """
        killed: set[int] = set()
        deadline = time.monotonic() + KILL_GRACE_S
        while time.monotonic() < deadline:
            strays = self._strays()
            fresh = {stray.pid for stray in strays} - killed
            for stray in strays:
                _kill(stray.pid)
            killed |= fresh
            for stray in strays:
                _reap(stray.pid)
            if not strays:
                break
            if not fresh:
                time.sleep(0.005)
        return len(killed)

    def _strays(self) -> list[psutil.Process]:
        keep = set(self._spared) | ({self._zygote.pid} if self._zygote else set())
        strays = []
        for child in psutil.Process().children():
            if child.pid in keep:
                continue
            with contextlib.suppress(psutil.NoSuchProcess):
                strays += child.children(recursive=True)
            strays.append(child)
        return strays

    def _look_for_tool(self) -> None:
        """Take pending input.

        Raises:
            ToolIsGone: end of file, or the parent process has ended.
        """
        if os.getppid() != self._tool:
            raise ToolIsGone
        ready, _, _ = select.select([0], [], [], 0)
        if ready:
            data = os.read(0, 1 << 16)
            if not data:
                raise ToolIsGone
            self._input += data
            if self._input.endswith(QUIT):
                raise ToolIsGone

    def _next_request(self) -> Request:
        while b"\n" not in self._input:
            select.select([0], [], [], _TICK_S)
            self._look_for_tool()
            if self._zygote is not None:
                _reap_strays(self._zygote.pid)
        line, self._input = self._input.split(b"\n", 1)
        return Request.decode(line)

    def _line(self, connection: socket.socket, deadline_s: float) -> bytes:
        """One line from the zygote.

        Raises:
            ConnectionError: it closed the connection.
            TimeoutError: it did not answer in time.
            ToolIsGone: the tool ended meanwhile.
        """
        data, deadline = b"", time.monotonic() + deadline_s
        while not data.endswith(b"\n"):
            if time.monotonic() > deadline:
                raise TimeoutError("the zygote does not answer")
            self._look_for_tool()
            ready, _, _ = select.select([connection.fileno(), 0], [], [], _TICK_S)
            if connection.fileno() in ready:
                part = connection.recv(1 << 12)
                if not part or len(data) > _LONGEST_REPLY:
                    raise ConnectionError("the zygote closed its control socket, or the user's file writes to it")
                data += part
        return data

    def _reply(self, message: Message) -> None:
        os.write(self._report, json.dumps(message).encode() + b"\n")

    def kill_everything(self) -> None:
        """Kill and reap every descendant."""
        self._zygote, self._spared = None, set()
        self._kill_strays()


def interpreter(call: str) -> list[str]:
    """Command of a fresh interpreter running ``call``, finding autotune where this process found it.

    ``-P`` keeps the working directory off ``sys.path``, so that a user's ``json.py`` cannot replace ours.
    """
    root = str(Path(__file__).resolve().parents[2])
    return [sys.executable, "-P", "-c", f"import sys; sys.path.append({root!r}); {call}"]


def limited(command: tuple[str, ...], data_bytes: int) -> list[str]:
    """The command under a limit on its data segment, for programs that nothing can be set in from within."""
    call = (
        "import os, resource, sys; hard = resource.getrlimit(resource.RLIMIT_DATA)[1]; "
        f"resource.setrlimit(resource.RLIMIT_DATA, ({data_bytes}, hard)); os.execvp(sys.argv[1], sys.argv[1:])"
    )
    return [sys.executable, "-I", "-S", "-c", call, *command]


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # gone; or set-user-id, and not ours to kill
        os.kill(pid, signal.SIGKILL)


def _signal_job(job: Job, number: signal.Signals) -> None:
    """Signal the group a job started in, and the job itself, which may have left that group."""
    # ESRCH: nobody is left in the group; EPERM: what macOS says of a group of zombies
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(job.group, number)
    if job.status is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(job.pid, number)


def _shorten(logs: tuple[str, ...]) -> None:
    """Keep a flood of output from filling the disk; files are open for appending, so writing goes on at the start."""
    for log in logs:
        with contextlib.suppress(FileNotFoundError):
            if os.stat(log).st_size > LOG_LIMIT_BYTES:
                os.truncate(log, 0)


def _reap(pid: int) -> int | None:
    """Wait status of a child, None while it lives."""
    try:
        found, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:  # not (yet) ours: a forked probe is handed over a moment after it is announced
        return None
    return status if found else None


def _reap_strays(zygote: int) -> None:
    """Reap orphans handed to this process, leaving the zygote's status to its owner."""
    for child in psutil.Process().children():
        if child.pid != zygote:
            _reap(child.pid)


def _exit_code(status: int) -> int | None:
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else None


def _signal(status: int) -> int | None:
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else None


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
    guardian = Guardian(tool, report)
    try:
        guardian.serve()
    except (ToolIsGone, BrokenPipeError):
        pass
    finally:
        guardian.kill_everything()
        shutil.rmtree(directory, ignore_errors=True)
