"""A command line that typer cannot read, as an error that says what was given and what to type instead."""

import difflib
import shlex
from collections.abc import Sequence
from typing import Any

from autotune.cli.invocation import Invocation
from autotune.errors import UsageError

_ALIKE = 0.85
"""From this share of equal letters on, an unknown option is a slip of the fingers, and not one of the user's file."""
_SEARCHES = ("search", "max-batch", "predict")
_WORDS = {
    "int_parsing": "no whole number",
    "float_parsing": "no number of the form 300 or 1.5",
    "greater_than_equal": "too small",
}
"""What pydantic, by which typer reads values, calls them -> what they are."""


def misused(error: Any, program: str, argv: Sequence[str]) -> UsageError:
    """The error to tell.

    Args:
        error: what typer raised; it gives these types no public name.
        program: how the user started it.
        argv: arguments without the program's name.
    """
    return UsageError(_message(error), hint=_hint(error, program, argv))


def _message(error: Any) -> str:
    text = " ".join(error.format_message().split())  # a list of choices has lines of its own
    text = text.replace("Value error, ", "")  # words of pydantic, which typer repeats
    found: list[dict[str, Any]] = error.__cause__.errors() if hasattr(error.__cause__, "errors") else []
    if not found or repr(found[0]["input"]) in text:
        return text
    value, what = repr(found[0]["input"]), _WORDS.get(found[0]["type"])
    return text.replace(error.message, f"{value} is {what}") if what else f"{text}: {value}"


def _hint(error: Any, program: str, argv: Sequence[str]) -> str:
    """The next thing to type."""
    context = error.ctx
    if context is None:  # an option without its value
        return shlex.join([program, *argv[:1], "--help"])
    if type(error).__name__ == "NoSuchOption":
        alike = difflib.get_close_matches(error.option_name, error.possibilities or (), n=1, cutoff=_ALIKE)
        if alike:
            return f"did you mean {alike[0]}?"
        others = _commands_with(error.option_name, context)
        if others:
            return f"{error.option_name} is an option of {' and '.join(others)}"
        corrected = _after_the_dashes(error.option_name, context.command.params, argv)
        if corrected:
            return f"arguments for your file come after --: {program} {shlex.join(corrected)}"
    usage = f"{context.command_path} --help"
    param = getattr(error, "param", None)
    if param is None or not param.opts[0].startswith("-"):
        return usage
    return f"{usage} says of {param.opts[0]}: {param.help}"


def _commands_with(option: str, context: Any) -> list[str]:
    """Searches that take an option which this one does not."""
    if context.parent is None or context.info_name not in _SEARCHES:
        return []
    commands = context.parent.command.commands
    return [
        f"{context.parent.command_path} {name}"
        for name in _SEARCHES
        if any(option in param.opts for param in commands[name].params)
    ]


def _after_the_dashes(option: str, params: Sequence[Any], argv: Sequence[str]) -> list[str]:
    """The command line with an option of the user's file moved behind ``--``; empty where it cannot be one."""
    typed = Invocation("", tuple(argv))
    own, theirs = typed.own, typed.behind_dashes
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
