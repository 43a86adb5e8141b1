"""The two streams: results on stdout, everything else on stderr. Nothing else in autotune writes to either."""

import os
import re

from rich.console import Console
from rich.text import Text

from autotune.cli.signals import StdoutClosed

_CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Terminal control sequences (CSI, OSC) and control characters other than line break and tab."""
_PASSWORD = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://[^\s/:@\"']*:)[^\s\"']*@")
"""Up to the last @ of the word: a password may hold one, though it should be written %40."""
_SECRET_OPTION = re.compile(r"([?&][A-Za-z_]*(?:password|passwd|token|secret)=)[^\s&\"']+", re.IGNORECASE)
"""As drivers of databases take them (``?sslpassword=``)."""

_COMMAND = re.compile(r"^\s*::|##\[", re.MULTILINE)
"""How GitHub's commands begin, the newer form and the older one."""


class Screen(Console):
    """A stream for text that was not written for it.

    Exceptions and file names of the user are printed as they are: nothing in them is markup, control sequences are
    dropped, long lines are not folded. Colour only on a terminal, and never with NO_COLOR.
    """

    def __init__(self, *, stderr: bool) -> None:
        super().__init__(stderr=stderr, markup=False, emoji=False, highlight=False, soft_wrap=True)

    def say(self, text: str, style: str = "") -> None:
        """Print lines in one style."""
        self.print(Text(_told_nobody_else(printable(text)), style=style))

    def command(self, text: str) -> None:
        """Print a line that is meant for the machine that runs a pipeline."""
        self.print(Text(printable(text)))

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
    """Text without terminal control sequences and without passwords of URLs."""
    text = _CONTROL.sub("", text)
    return _SECRET_OPTION.sub(r"\1***", _PASSWORD.sub(r"\1***@", text)) if "://" in text else text
