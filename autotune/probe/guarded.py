"""The tool's end of its connection to the guardian: starting it, sending requests, waiting for reports. No torch."""

import contextlib
import os
import selectors
import subprocess
import time
from pathlib import Path

import psutil

from autotune.errors import EnvironmentTrouble
from autotune.probe.ended import Ended, read_ended, tail
from autotune.probe.guardian import EXIT_GRACE_S, TERM_GRACE_S
from autotune.probe.interpreter import interpreter
from autotune.probe.order import Request
from autotune.probe.tool import QUIT
from autotune.workload.source import INSIDE_VARIABLE

_SLACK_S = 15.0
"""Beyond deadline and graces before the guardian itself counts as hung."""
_LOOK_UP_S = 1.0
"""How long the tool waits without looking up."""
_STOP_S = 10.0
"""For the guardian to kill and reap everything."""


class Guarded:
    """A guardian with working files of its own; everything below it ends with ``stop``, or with this process."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        """Working files; what runs below carries its name in the environment."""
        self.process: subprocess.Popen[bytes] | None = None
        self._report = -1
        self._reports = b""

    def start(self) -> None:
        """Start the guardian, unless there is one.

        Raises:
            EnvironmentTrouble: no process can be started.
        """
        if self.process is not None:
            return
        reading, writing = os.pipe()
        call = f"from autotune.probe.guardian import main; main({str(self.directory)!r}, {os.getpid()}, {writing})"
        try:
            with (self.directory / "guardian.err").open("ab") as log:
                self.process = subprocess.Popen(
                    interpreter(call),
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    pass_fds=[writing],
                    start_new_session=True,
                )
        except OSError as error:
            os.close(reading)
            raise EnvironmentTrouble(f"a probe process cannot be started: {error}") from error
        finally:
            os.close(writing)
        self._report, self._reports = reading, b""

    def ask(self, request: Request) -> Ended:
        """Send one request and wait for its report.

        Raises:
            EnvironmentTrouble: the guardian died or hangs.
        """
        self.send(request)
        return self.wait(request)

    def send(self, request: Request) -> None:
        """Give one request to the guardian.

        Raises:
            EnvironmentTrouble: the guardian died.
        """
        guardian = self.process
        assert guardian is not None and guardian.stdin is not None
        try:
            guardian.stdin.write(request.encode())
            guardian.stdin.flush()
        except BrokenPipeError as error:
            raise self._trouble("is gone") from error

    def wait(self, request: Request) -> Ended:
        """Wait for the guardian's report of what was sent last.

        Raises:
            EnvironmentTrouble: the guardian died or hangs.
        """
        to_fork_s = request.deadline_s if request.fork else 0.0  # the zygote may be making a model
        allowed_s = to_fork_s + (request.begin_s or 0.0) + request.deadline_s + TERM_GRACE_S + EXIT_GRACE_S + _SLACK_S
        deadline = time.monotonic() + allowed_s
        with selectors.DefaultSelector() as waiting:  # select() itself fails above descriptor 1023
            waiting.register(self._report, selectors.EVENT_READ)
            while b"\n" not in self._reports:
                left_s = deadline - time.monotonic()
                # A signal just before the call does not interrupt it, and its handler runs when it returns.
                if not waiting.select(max(0.0, min(left_s, _LOOK_UP_S))):
                    if left_s <= 0:
                        raise self._trouble("does not answer")
                    continue
                data = os.read(self._report, 1 << 16)
                if not data:
                    raise self._trouble("died")
                self._reports += data
        line, self._reports = self._reports.split(b"\n", 1)
        return read_ended(line)

    def _trouble(self, what: str) -> EnvironmentTrouble:
        text = tail(self.directory / "guardian.err")
        self.stop()
        return EnvironmentTrouble(
            f"the guardian of the probe processes {what}",
            hint="run the same command again: finished probes are kept",
            detail=text,
        )

    def stop(self) -> None:
        """Tell the guardian to kill everything and end; make sure of both."""
        guardian, self.process = self.process, None
        if guardian is None or guardian.stdin is None:
            return
        with contextlib.suppress(BrokenPipeError):
            guardian.stdin.write(QUIT)
            guardian.stdin.flush()
        with contextlib.suppress(BrokenPipeError):
            guardian.stdin.close()
        try:
            guardian.wait(timeout=_STOP_S)
        except subprocess.TimeoutExpired:
            guardian.kill()
            guardian.wait()
        os.close(self._report)
        if guardian.returncode != 0:
            kill_marked(str(self.directory))


def kill_marked(mark: str) -> None:
    """Kill every process that carries this mark in its environment: what a guardian that was killed left behind."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid != os.getpid() and process.environ().get(INSIDE_VARIABLE) == mark:
                process.kill()
