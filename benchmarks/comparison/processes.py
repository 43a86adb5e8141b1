"""Running one finder's command in a process of its own, and how long that took."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from tempfile import TemporaryFile
from typing import Any

from benchmarks.common.documents import Status
from benchmarks.comparison.cases import ROOT

TERM_GRACE_S = 10.0
"""For a command to end its own children."""
_TAIL = 8000  # characters of stderr kept with a failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A command's end."""

    exit_code: int | None
    """None: it ran out of time and was ended."""
    stdout: str
    stderr_tail: str
    seconds: float
    """From its start to its exit."""

    @property
    def last_line(self) -> str:
        """Of stdout; empty if it printed nothing."""
        lines = self.stdout.strip().splitlines()
        return lines[-1] if lines else ""

    @property
    def last_word(self) -> str:
        """The last line of stderr, where a traceback says what happened."""
        lines = self.stderr_tail.strip().splitlines()
        return lines[-1] if lines else f"exit code {self.exit_code}, without a word"

    def unanswered(self, message: str = "") -> dict[str, Any]:
        """Fields of a part of a document that it gave no answer for; ``message``: why, if it said so itself."""
        seconds = round(self.seconds, 1)
        if self.exit_code is None:
            return {"status": Status.TIMED_OUT, "seconds": seconds, "message": f"ended after {seconds:.0f} s"}
        return {"status": Status.FAILED, "seconds": seconds, "message": message or self.last_word}


def run(command: Sequence[str], *, timeout_s: float) -> Ended:
    """Run to its end, in the checkout, with the whole process group ended when time runs out or the caller stops."""
    with TemporaryFile() as log:
        began = time.perf_counter()
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            process_group=0,  # in the same session, so that whatever ends that ends this, too
        )
        exit_code: int | None = None
        try:
            stdout, _ = process.communicate(timeout=timeout_s)
            exit_code = process.returncode
        except subprocess.TimeoutExpired:
            stdout = b""
        finally:
            seconds = time.perf_counter() - began
            _end(process)
        log.seek(0, os.SEEK_END)
        log.seek(max(0, log.tell() - _TAIL))
        tail = log.read().decode(errors="replace")
    return Ended(exit_code=exit_code, stdout=stdout.decode(errors="replace"), stderr_tail=tail, seconds=seconds)


def _end(process: subprocess.Popen[bytes]) -> None:
    """TERM to the group, then KILL, and wait; nothing where it has ended already."""
    if process.poll() is not None:
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(TERM_GRACE_S)
            return
