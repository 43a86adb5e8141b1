"""Requests and answers as files of a folder that both sides see: how the tool talks to a worker in a batch job.

Jobs of a batch system share a file system with the host they were submitted from, and often nothing else. Files are moved
into place whole. Each side counts in a file of its own, so that the other sees it live whatever the clocks say; a side
whose count stands still for long counts as gone. The folder is the user's alone, and what is read is validated all the same.
"""

import contextlib
import json
import os
import signal
import socket
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Self

from autotune.executors.host import Host, Message

POLL_S = 0.1
BEAT_S = 1.0
SILENCE_S = 120.0
"""Without a count for so long the other side is gone: file systems may show a change only after a minute."""
_STARTED, _ENDED, _STOP = "started", "ended", "stop"


class Mailbox:
    """One worker's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._number = 0
        self._heard: dict[str, tuple[str, float]] = {}

    def make(self) -> None:
        """Make the folder, for this user alone."""
        self.folder.mkdir(mode=0o700, parents=True)

    def write(self, name: str, content: Message | str) -> None:
        """Leave a file for the other side."""
        path = self.folder / name
        unfinished = path.with_suffix(".new")
        unfinished.write_text(content if isinstance(content, str) else json.dumps(content))
        os.replace(unfinished, path)

    def take(self, name: str) -> Message | None:
        """A message, taken away; None if it is not there. Of what is none the receiver says so: it has no known kind."""
        path = self.folder / name
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        path.unlink(missing_ok=True)
        try:
            found = json.loads(data)
        except (ValueError, RecursionError):
            found = None
        return found if isinstance(found, dict) else {"kind": "unknown"}

    def has(self, name: str) -> bool:
        """Whether there is such a file."""
        return (self.folder / name).exists()

    def text(self, name: str) -> str:
        """What a file says; empty if it is not there."""
        with contextlib.suppress(FileNotFoundError):
            return (self.folder / name).read_text()
        return ""

    def silent_s(self, side: str) -> float:
        """For how long the count of the other side has stood still, as seen from here."""
        count, now = self.text(f"beat-{side}"), time.monotonic()
        before = self._heard.get(side)
        if before is None or before[0] != count:
            self._heard[side] = count, now
            return 0.0
        return now - before[1]


class Beat:
    """Counts for one side, in a thread of its own; use as a context manager."""

    def __init__(self, mailbox: Mailbox, side: str) -> None:
        self._mailbox = mailbox
        self._side = side
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._count, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _count(self) -> None:
        count = 0
        while not self._over.is_set():
            count += 1
            with contextlib.suppress(OSError):  # a folder that is gone, or a disk that is full: then it stands still
                self._mailbox.write(f"beat-{self._side}", str(count))
            self._over.wait(BEAT_S)


def serve(folder: str) -> str:
    """What a job runs: answer what is left in the folder until it says stop or nobody is at the other side.

    Returns:
        Why it ended.
    """
    mailbox = Mailbox(Path(folder))
    if mailbox.has(_STARTED):  # the batch system has started the job again: what it ran is counted as lost by now
        return "it was started a second time"
    mailbox.write(_STARTED, socket.gethostname())
    for number in (signal.SIGTERM, signal.SIGUSR2):
        signal.signal(number, _preempted)
    notes = 0

    def say(text: str) -> None:
        nonlocal notes
        notes += 1
        mailbox.write(f"note-{notes}", {"text": text})

    host = Host(say)
    why = "its process was ended"
    try:
        with Beat(mailbox, "worker"):
            why = _answer(mailbox, host)
    except SystemExit as error:
        why = str(error.code)
        raise
    finally:
        host.close()
        with contextlib.suppress(OSError):  # the tool is gone, and with it the folder
            mailbox.write(_ENDED, why)
    return why


def _answer(mailbox: Mailbox, host: Host) -> str:
    number = 1
    while True:
        if mailbox.has(_STOP):
            return "it was told to stop"
        if mailbox.silent_s("tool") > SILENCE_S:
            return "nobody asks any more"
        request = mailbox.take(f"request-{number}")
        if request is None:
            time.sleep(POLL_S)
            continue
        mailbox.write(f"answer-{number}", host.answer(request))
        number += 1


def _preempted(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)
    raise SystemExit(f"it was stopped by {signal.Signals(number).name}: preempted, cancelled or out of time")


class Caller:
    """The tool's side of a mailbox."""

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox
        self._requests = 0
        self._notes = 0

    def ask(self, request: Message) -> None:
        """Leave a request."""
        self._requests += 1
        self._mailbox.write(f"request-{self._requests}", request)

    def answer(self) -> Message | None:
        """The answer to it; None if it is not there yet."""
        return self._mailbox.take(f"answer-{self._requests}")

    def note(self) -> str:
        """Something that people should know, once; empty if there is nothing new."""
        found = self._mailbox.take(f"note-{self._notes + 1}")
        if found is None:
            return ""
        self._notes += 1
        return str(found.get("text", ""))

    def started(self) -> str:
        """The host that the job runs on; empty as long as it waits."""
        return self._mailbox.text(_STARTED)

    def gone(self) -> str:
        """Why the worker is gone; empty as long as it is not."""
        ended = self._mailbox.text(_ENDED)
        if ended or not self.started():
            return ended
        silent_s = self._mailbox.silent_s("worker")
        return f"nothing was heard of it for {silent_s:.0f} s" if silent_s > SILENCE_S else ""

    def stop(self) -> None:
        """Tell the worker to end."""
        self._mailbox.write(_STOP, "stop")
