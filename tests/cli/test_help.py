"""Every command and every option explains itself."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from autotune.cli.app import run
from autotune.cli.commands import app
from tests.cli.conftest import Invoke

DOCS = Path(__file__).parents[2] / "docs" / "README.md"


def _commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command and group below the root with the words that call it."""
    for name, child in getattr(command, "commands", {}).items():
        yield (*path, name), child
        yield from _commands(child, (*path, name))


COMMANDS = dict(_commands(get_command(app)))


def test_the_commands_are_those_promised() -> None:
    assert sorted(" ".join(path) for path in COMMANDS) == [
        "check",
        "diagnose",
        "doctor",
        "explain",
        "export",
        "init",
        "inspect",
        "max-batch",
        "predict",
        "report",
        "runs",
        "runs compare",
        "runs export",
        "runs import",
        "runs ls",
        "runs rm",
        "runs show",
        "schema",
        "search",
        "watch",
    ]


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_and_every_option_has_help(path: tuple[str, ...]) -> None:
    command = COMMANDS[path]
    assert command.help
    assert [option.name for option in command.params if not option.help and option.name != "help"] == []


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_an_option_whose_value_is_called_as_itself_is_named_since_typer_0_27_writes_it_in_capitals(
    path: tuple[str, ...],
) -> None:
    options = [param for param in COMMANDS[path].params if getattr(param, "metavar", None)]
    assert all(param.opts[0] == param.opts[0].lower() for param in options if param.opts[0].startswith("--"))


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_is_plain_and_ends_well(invoke: Invoke, path: tuple[str, ...]) -> None:
    ended = invoke(*path, "--help")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith(f"Usage: autotune {' '.join(path)} ")
    assert ended.out.isascii()
    assert "..." not in ended.out.partition("Commands:")[2]  # one line has room for what a command does
    assert invoke(*path, "-h") == ended


@pytest.mark.skipif(not DOCS.exists(), reason="the checkout has no docs")
@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_is_documented(path: tuple[str, ...]) -> None:
    assert f"autotune {' '.join(path)}" in DOCS.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", ["predict", "diagnose"])
def test_a_command_that_takes_no_training_command_does_not_offer_it(path: str) -> None:
    said = {param.name: param.help for param in COMMANDS[(path,)].params}
    assert "training command" not in said["model"]
    assert "For search, max-batch and inspect a training command" in said["args"]


def test_without_a_command_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 0
    out = capsys.readouterr().out
    assert out.startswith("Usage: autotune [OPTIONS] COMMAND")
    assert "..." not in out.partition("Commands:")[2]  # one line has room for what a command does
