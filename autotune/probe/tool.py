"""The guardian's end of its connection to the tool (``guarded`` is the other): requests, replies, and that the tool is there."""

import json
import os
import select
from collections.abc import Callable

from autotune.probe.order import Request
from autotune.probe.wire import Message, write_all

QUIT = b"quit\n"
"""What the tool sends when it is done; end-of-file alone would be missed while some fork of the tool holds the pipe."""
TICK_S = 0.2
"""How often a lost parent is looked for beside end-of-file."""


class ToolIsGone(Exception):
    """Raised inside the guardian when its parent has ended or closed the connection."""


class Tool:
    """Requests come on standard input."""

    def __init__(self, process: int, report: int) -> None:
        """
        Args:
            process: id of the tool, the parent of this process.
            report: descriptor to report on.
        """
        self._process = process
        self._report = report
        self._input = b""

    def look(self) -> None:
        """Take pending input.

        Raises:
            ToolIsGone: end of file, or the parent process has ended.
        """
        if os.getppid() != self._process:
            raise ToolIsGone
        ready, _, _ = select.select([0], [], [], 0)
        if ready:
            data = os.read(0, 1 << 16)
            if not data:
                raise ToolIsGone
            self._input += data
            if self._input.endswith(QUIT):
                raise ToolIsGone

    def next_request(self, meanwhile: Callable[[], None]) -> Request:
        """Wait for one; ``meanwhile`` is called now and then.

        Raises:
            ToolIsGone: as ``look``.
        """
        while b"\n" not in self._input:
            select.select([0], [], [], TICK_S)
            self.look()
            meanwhile()
        line, self._input = self._input.split(b"\n", 1)
        return Request.decode(line)

    def reply(self, message: Message) -> None:
        """Report the end of what was asked for last."""
        write_all(self._report, json.dumps(message).encode() + b"\n")
