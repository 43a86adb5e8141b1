"""One process that the guardian watches, and how it is signalled, reaped and kept from filling the disk. No torch."""

import contextlib
import os
import signal
import time
from dataclasses import dataclass

from autotune.probe.wire import Decoder, Message

LOG_LIMIT_BYTES = 64 << 20
"""A log that grows beyond this is started again: only its tail is kept anyway."""


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
    ended_at: float | None = None
    """Instant on ``time.monotonic`` at which it had answered, or was seen to have ended without."""
    silent: bool = False
    """It has closed its answer pipe."""
    timed_out: bool = False
    stopped: bool = False
    """Ended because another rank of its probe had failed."""
    cut_short: bool = False
    """Killed after its answer: how it ended is our doing and says nothing."""

    @property
    def done(self) -> bool:
        """Whether it has answered, or is gone."""
        return self.answer is not None or self.status is not None

    @property
    def failed(self) -> bool:
        """Whether it has ended otherwise than with a measurement. What the answer says is looked at by the tool."""
        if self.answer is None:
            return self.status is not None
        return bool(self.answer.get("raised")) or self.answer.get("refused") is not None

    def take(self, data: bytes) -> None:
        """What was read from its pipe."""
        for message in self.decoder.feed(data):
            if message["kind"] not in self.last_kinds:
                self.marks = message
            elif self.answer is None:
                self.answer, self.ended_at = message, time.monotonic()

    def look(self) -> None:
        """See whether it has ended, and shorten its logs."""
        _shorten(self.logs)
        if self.status is None:
            self.status = reap(self.pid)
            if self.status is not None and self.ended_at is None:
                self.ended_at = time.monotonic()

    def signal(self, number: signal.Signals) -> None:
        """Signal the group it started in, and the job itself, which may have left that group."""
        # ESRCH: nobody is left in the group; EPERM: what macOS says of a group of zombies
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.group, number)
        if self.status is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, number)

    def report(self) -> Message:
        """The fields of ``ended.Ended`` that are this process's own."""
        known = None if self.status is None or self.cut_short else self.status
        return {
            "answer": self.answer,
            "mark": self.marks,
            "exit_code": os.WEXITSTATUS(known) if known is not None and os.WIFEXITED(known) else None,
            "signal": os.WTERMSIG(known) if known is not None and os.WIFSIGNALED(known) else None,
            "timed_out": self.timed_out,
            "stopped": self.stopped,
            "ended_at": self.ended_at,
            "garbage_bytes": self.decoder.garbage_bytes,
        }


def reap(pid: int) -> int | None:
    """Wait status of a child, None while it lives."""
    try:
        found, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:  # not (yet) ours: a forked probe is handed over a moment after it is announced
        return None
    return status if found else None


def kill(pid: int) -> None:
    """Kill one process."""
    with contextlib.suppress(ProcessLookupError, PermissionError):  # gone; or set-user-id, and not ours to kill
        os.kill(pid, signal.SIGKILL)


def _shorten(logs: tuple[str, ...]) -> None:
    """Keep a flood of output from filling the disk; files are open for appending, so writing goes on at the start."""
    for log in logs:
        with contextlib.suppress(FileNotFoundError):
            if os.stat(log).st_size > LOG_LIMIT_BYTES:
                os.truncate(log, 0)
