"""Ends that come from outside, as exceptions: Ctrl-C, SIGTERM, a reader that went away.

Whoever runs a search can so stop its children and mark it interrupted.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_PATIENCE = 3
"""The signal of this number ends the process at once. The second is ignored: wrappers such as ``uv run`` pass on a
Ctrl-C that the terminal has already delivered, and it must not cut the clean-up short."""


class Stopped(BaseException):
    """Raised in the main thread by the first signal; no ``except Exception`` on the way catches it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.name = signal.Signals(number).name
        self.exit_code = 128 + number
        """130 for SIGINT, 143 for SIGTERM, as shells report them."""


class StdoutClosed(Exception):
    """Raised while printing a result that nobody reads any more (``autotune ... | head``)."""


@contextmanager
def stoppable() -> Iterator[None]:
    """Within the block SIGINT and SIGTERM raise ``Stopped``; a signal ignored on entry (``nohup``) stays ignored."""
    received = 0

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal received
        received += 1
        if received == 1:
            raise Stopped(number)
        if received >= _PATIENCE:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

    before = {
        number: signal.signal(number, stop)
        for number in (signal.SIGINT, signal.SIGTERM)
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
