"""The process between the tool and its probes: starts them, watches the clock, kills whole trees, survives the tool.

    tool ──stdin/stdout──> guardian ──> zygote          (torch and the user's file loaded, never touches the device)
                              ├───────> probe process   (forked by the zygote and handed over, or spawned)
                              └───────> orphans of any of them (this process is their subreaper on Linux)

When the tool ends, in whatever way, standard input ends here; then everything below is killed and this process ends.
It imports neither torch nor the user's file, so nothing of the user's can stop it. One job at a time.
"""

import json
import os
import select
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
    marks: Message | None = None
    """Latest progress mark."""
    answer: Message | None = None
    status: int | None = None
    """Wait status once reaped."""
    timed_out: bool = False
    leftovers: int = 0
    """Descendants that were still alive when the process had ended."""
    started: float = field(default_factory=time.monotonic)


class Guardian:
    """Serves the tool's requests until the tool is gone."""

    def __init__(self, directory: Path, tool: int) -> None:
        self._directory = directory
        self._tool = tool
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
            elif request.fork and self._control is not None:
                job = self._fork(request)
            else:
                job = self._spawn(request, "autotune.probe.worker", ("answer",), None)
                self._watch(job, request.deadline_s)
            _reply(
                {
                    "pid": job.pid,
                    "answer": job.answer,
                    "mark": job.marks,
                    "exit_code": None if job.status is None else _exit_code(job.status),
                    "signal": None if job.status is None else _signal(job.status),
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
            return job
        mine.close()
        if job.status is None:
            self._end(job)
        return job

    def _spawn(self, request: Request, module: str, last: tuple[str, ...], control: socket.socket | None) -> Job:
        """A fresh interpreter in its own session, answer pipe and control socket passed by descriptor."""
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
                start_new_session=True,
            )
        child.returncode = 0  # reaped here by os.waitpid, not by subprocess
        os.close(writing)
        return Job(pid=child.pid, group=child.pid, pipe=reading, decoder=Decoder(token), last_kinds=last)

    def _fork(self, request: Request) -> Job:
        """Have the zygote fork; the child becomes a child of this process."""
        assert self._control is not None and self._zygote is not None
        reading, writing = os.pipe()
        token = new_token()
        try:
            wanted = {"order": request.order, "stdout": request.stdout, "stderr": request.stderr}
            line = json.dumps({**wanted, "token": token, "guardian": os.getpid()}).encode() + b"\n"
            socket.send_fds(self._control, [line], [writing])
            reply = json.loads(_line(self._control))
        except (OSError, ValueError):  # the zygote is dead: its orphan, if any, has the answer pipe and nothing else
            os.close(reading)
            self._control.close()
            self._control = None
            self._end(self._zygote)
            job, self._zygote = self._zygote, None
            job.answer = None
            return job
        finally:
            os.close(writing)
        job = Job(pid=reply["pid"], group=reply["group"], pipe=reading, decoder=Decoder(token), last_kinds=("answer",))
        self._watch(job, request.deadline_s)
        return job

    def _watch(self, job: Job, deadline_s: float, *, keep: bool = False) -> None:
        """Read a job's messages until it has ended, whatever that takes. ``keep``: return once it has answered."""
        deadline = time.monotonic() + deadline_s
        kill_at: float | None = None
        exit_by: float | None = None
        while job.status is None:
            self._read(job, _TICK_S if job.answer is None else 0.01)
            self._look_for_tool()
            job.status = _reap(job.pid)
            now = time.monotonic()
            if job.answer is not None:
                if keep and job.answer["kind"] == "ready":
                    return
                exit_by = exit_by or now + EXIT_GRACE_S
                if now >= exit_by:
                    _signal_group(job, signal.SIGKILL)
            elif kill_at is not None and now >= kill_at:
                _signal_group(job, signal.SIGKILL)
                if job.status is None and not psutil.pid_exists(job.pid):
                    job.status = 0  # gone without a status for us: reported as a process that gave no answer
            elif kill_at is None and now >= deadline:
                job.timed_out = True
                _signal_group(job, signal.SIGTERM)
                kill_at = now + TERM_GRACE_S
        self._end(job)

    def _read(self, job: Job, wait_s: float) -> None:
        """Take what is on the answer pipe, waiting at most ``wait_s``."""
        ready, _, _ = select.select([job.pipe, 0], [], [], wait_s)
        if job.pipe not in ready:
            return
        data = os.read(job.pipe, 1 << 16)
        if not data:  # closed by the job: nothing more will come, so do not spin on it
            time.sleep(0.005)
        for message in job.decoder.feed(data):
            if message["kind"] in job.last_kinds:
                job.answer = message
            else:
                job.marks = message

    def _end(self, job: Job) -> None:
        """Kill what is left of a job's tree, reap it, take the last messages."""
        _signal_group(job, signal.SIGKILL)
        if job.status is None:
            job.status = os.waitpid(job.pid, 0)[1]
        job.leftovers = self._kill_strays()
        os.set_blocking(job.pipe, False)
        try:
            while data := os.read(job.pipe, 1 << 16):
                for message in job.decoder.feed(data):
                    if message["kind"] in job.last_kinds:
                        job.answer = job.answer or message
                    else:
                        job.marks = message
        except BlockingIOError:  # a stray outside this tree holds the writing end; nothing more was said
            pass
        os.close(job.pipe)

    def _kill_strays(self) -> int:
        """Kill and reap every descendant that is not the zygote or below it; return how many there were."""
        killed = 0
        for _ in range(100):  # a fork bomb may add some while we kill; it must end some time
            strays = [
                child for child in psutil.Process().children() if self._zygote is None or child.pid != self._zygote.pid
            ]
            if not strays:
                break
            for stray in strays:
                for process in [stray, *_descendants(stray)]:
                    killed += _kill(process.pid)
                _reap(stray.pid, block=True)
        return killed

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

    def _next_request(self) -> Request:
        while b"\n" not in self._input:
            select.select([0], [], [], _TICK_S)
            self._look_for_tool()
            if self._zygote is not None:
                _reap_strays(self._zygote.pid)
        line, self._input = self._input.split(b"\n", 1)
        return Request.decode(line)

    def kill_everything(self) -> None:
        """Kill and reap every descendant."""
        self._zygote = None
        self._kill_strays()


def interpreter(call: str) -> list[str]:
    """Command of a fresh interpreter running ``call``, finding autotune where this process found it.

    ``-P`` keeps the working directory off ``sys.path``, so that a user's ``json.py`` cannot replace ours.
    """
    root = str(Path(__file__).resolve().parents[2])
    return [sys.executable, "-P", "-c", f"import sys; sys.path.append({root!r}); {call}"]


def _descendants(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _kill(pid: int) -> int:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return 0
    return 1


def _signal_group(job: Job, number: signal.Signals) -> None:
    try:
        os.killpg(job.group, number)
    except ProcessLookupError:  # the whole group has ended already
        pass
    except PermissionError:  # macOS says this for a group of zombies
        pass


def _reap(pid: int, *, block: bool = False) -> int | None:
    """Wait status of a child, None while it lives."""
    try:
        found, status = os.waitpid(pid, 0 if block else os.WNOHANG)
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


def _line(connection: socket.socket) -> bytes:
    data = b""
    while not data.endswith(b"\n"):
        part = connection.recv(1 << 12)
        if not part:
            raise ConnectionError("the zygote closed its control socket")
        data += part
    return data


def _reply(message: Message) -> None:
    os.write(1, json.dumps(message).encode() + b"\n")


def main(directory: str, tool: int) -> None:
    """Entry point of the guardian process.

    Args:
        directory: working files of this search.
        tool: process id of the tool, whose end is this process's end.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the tool decides; its end reaches us as end-of-file
    linux.become_subreaper()
    guardian = Guardian(Path(directory), tool)
    try:
        guardian.serve()
    except (ToolIsGone, BrokenPipeError):
        pass
    finally:
        guardian.kill_everything()
