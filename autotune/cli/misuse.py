"""What to type instead of a command line that typer cannot read."""

import shlex
from collections.abc import Sequence
from typing import Any


def misuse_hint(error: Any, program: str, argv: Sequence[str]) -> str:
    """The next thing to type.

    Args:
        error: what typer raised; it gives these types no public name.
        program: how the user started it.
        argv: arguments without the program's name.
    """
    context = error.ctx
    if context is None:
        return f"{program} --help"
    if type(error).__name__ == "NoSuchOption":
        corrected = _after_the_dashes(error.option_name, context.command.params, argv)
        if corrected:
            return f"arguments for your file come after --: {program} {shlex.join(corrected)}"
    return f"{context.command_path} --help"


def _after_the_dashes(option: str, params: Sequence[Any], argv: Sequence[str]) -> list[str]:
    """The command line with an option of the user's file moved behind ``--``; empty where it cannot be one."""
    own_end = argv.index("--") if "--" in argv else len(argv)
    own, theirs = list(argv[:own_end]), list(argv[own_end + 1 :])
    at = next((at for at, word in enumerate(own) if word.partition("=")[0] == option), None)
    if at is None or not _has_model(own[1:at], params):
        return []
    value_follows = "=" not in own[at] and at + 1 < len(own) and not own[at + 1].startswith("-")
    end = at + 2 if value_follows else at + 1
    return [*own[:at], *own[end:], "--", *own[at:end], *theirs]


def _has_model(words: Sequence[str], params: Sequence[Any]) -> bool:
    """Whether the command passes arguments on, and its MODEL is among these words: one that is no option's value."""
    if not any(param.name == "args" for param in params):
        return False
    with_value = {name for param in params if not getattr(param, "is_flag", False) for name in param.opts}
    before = ["", *words]
    return any(
        not word.startswith("-") and previous not in with_value for previous, word in zip(before, words, strict=False)
    )
