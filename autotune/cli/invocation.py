"""One call of the program: what was typed, as far as typer does not hand it on."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from autotune.errors import UsageError

_DASHES = "--"


@dataclass(frozen=True, slots=True)
class Invocation:
    """The words of one command line."""

    program: str
    """How the user started it."""
    argv: tuple[str, ...]
    """Arguments without the program's name."""

    @property
    def own(self) -> tuple[str, ...]:
        """Words before the first ``--``: autotune's own."""
        return self.argv[: self.argv.index(_DASHES)] if _DASHES in self.argv else self.argv

    @property
    def resume_command(self) -> str:
        """The command that goes on where this one was stopped: the same, without asking to start afresh."""
        own = [word for word in self.own if word != "--fresh"]
        return f"{self.program} {shlex.join([*own, *self.argv[len(self.own) :]])}"

    @property
    def behind_dashes(self) -> tuple[str, ...]:
        """Words after the first ``--``."""
        return self.argv[len(self.own) + 1 :]

    def split(self, model: str | None, args: Sequence[str]) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
        """(MODEL, arguments of its file, words of a training command): typer does not say what stood behind ``--``.

        Args:
            model: first word that is no option, or None.
            args: those that follow.

        Raises:
            UsageError: neither a model nor a command was given.
        """
        words = [] if model is None else [model, *args]
        behind = self.behind_dashes
        if not words:
            raise UsageError(
                "nothing to train was given",
                hint=f"give a file: {self.program} {self.argv[0] if self.argv else 'search'} model.py, or a training command"
                " behind --: -- python train.py --batch-size {batch}",
            )
        if len(words) == len(behind):  # no word before the dashes: all of them are the command
            return "", (), tuple(words)
        return words[0], tuple(words[1:]), ()
