"""The two streams: results on stdout, everything else on stderr. Nothing else in autotune writes to either."""

import os
import re

from rich.console import Console
from rich.text import Text

from autotune.cli.signals import StdoutClosed
from autotune.masked import without_passwords

_CONTROL = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)
"""Terminal control sequences (CSI, OSC), control characters other than line break and tab, and those that turn the
direction of writing, by which text can be made to look like another."""

_COMMAND = re.compile(r"^\s*::|##\[", re.MULTILINE)
"""How GitHub's commands begin, the newer form and the older one."""


class Screen(Console):
    """A stream for text that was not written for it.

    Exceptions and file names of the user are printed as they are, but for passwords: nothing in them is markup, control
    sequences are dropped, long lines are not folded. Colour only on a terminal, and never with NO_COLOR.
    """

    def __init__(self, *, stderr: bool) -> None:
        super().__init__(stderr=stderr, markup=False, emoji=False, highlight=False, soft_wrap=True)

    def say(self, text: str, style: str = "") -> None:
        """Print lines in one style."""
        self._put(Text(_told_nobody_else(printable(text)), style=style))

    def command(self, text: str) -> None:
        """Print a line that is meant for the machine that runs a pipeline."""
        self._put(Text(printable(text)))

    def _put(self, text: Text) -> None:
        try:
            self.print(text)
        except OSError:  # a full disk: as a closed pipe, which does not come here
            if not self.stderr:
                raise
            self.quiet = True

    def on_broken_pipe(self) -> None:
        """Stop writing. A lost stdout ends the command, a lost stderr (progress) must not end a long search."""
        self.quiet = True
        if not self.stderr:
            raise StdoutClosed


def on_github() -> bool:
    """Whether GitHub Actions reads what is printed, and takes some lines for commands."""
    return os.environ.get("GITHUB_ACTIONS") == "true"


def _told_nobody_else(text: str) -> str:
    """Text of which GitHub takes no line for a command: it comes from files, and from code that failed."""
    return _COMMAND.sub(lambda found: f"{found[0][:-1]} {found[0][-1]}", text) if on_github() else text


def printable(text: str) -> str:
    """Text as it may leave the program: without terminal control sequences, passwords masked."""
    return without_passwords(_CONTROL.sub("", text))
