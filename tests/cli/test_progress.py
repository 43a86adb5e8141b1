import sys

import pytest

from autotune.cli.console import Screen, printable
from autotune.cli.progress import Progress, Verbosity
from autotune.model import Form, Question, Reason
from tests.cli.results import BUDGET, MACHINE, WORKLOAD, fitting

QUESTION = Question(batch_size=16, form=Form.LONG, reason=Reason.CERTIFY)


def _pretend_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """To be called by the test itself: between fixtures and test, pytest changes the streams."""
    for variable in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)


def _search(verbosity: Verbosity) -> None:
    with Progress(Screen(stderr=True), verbosity) as progress:
        progress.found(WORKLOAD, MACHINE, BUDGET)
        progress.asked(QUESTION, 1)
        progress.answered(fitting(16, Form.LONG, Reason.CERTIFY), 1)


def test_a_terminal_sees_the_running_probe_and_then_the_finished_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _pretend_a_terminal(monkeypatch)
    _search(Verbosity.NORMAL)
    captured = capsys.readouterr()
    running = "probe 1   batch 16      long   certify       running  0 s"
    finished = "probe 1   batch 16      long   certify       fits  peak 23.4 GiB of 40 GiB (58 %)"
    assert captured.out == ""
    assert -1 < captured.err.find(running) < captured.err.find(finished)


def test_a_terminal_gets_colour_unless_it_is_declined(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _pretend_a_terminal(monkeypatch)
    green = "\x1b[32mprobe 1"
    _search(Verbosity.NORMAL)
    assert green in capsys.readouterr().err
    monkeypatch.setenv("NO_COLOR", "1")
    _search(Verbosity.NORMAL)
    assert green not in capsys.readouterr().err


def test_quiet_shows_nothing_on_a_terminal_either(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _pretend_a_terminal(monkeypatch)
    _search(Verbosity.QUIET)
    assert capsys.readouterr().err == ""


def test_the_live_line_is_gone_after_an_exception(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _pretend_a_terminal(monkeypatch)
    with pytest.raises(KeyboardInterrupt), Progress(Screen(stderr=True), Verbosity.NORMAL) as progress:
        progress.asked(QUESTION, 1)
        raise KeyboardInterrupt
    hidden, shown = "\x1b[?25l", "\x1b[?25h"
    text = capsys.readouterr().err
    assert text.rfind(hidden) < text.rfind(shown)


def test_what_was_found_is_remembered_for_a_failure() -> None:
    progress = Progress(Screen(stderr=True), Verbosity.QUIET)
    assert (progress.workload, progress.machine) == (None, None)
    progress.found(WORKLOAD, MACHINE, BUDGET)
    assert (progress.workload, progress.machine) == (WORKLOAD, MACHINE)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("plain [red]text[/red]\nand\ttab", "plain [red]text[/red]\nand\ttab"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("a\rb\x9bc\x00d", "abcd"),
        ("\x1b", ""),
        ("émile", "émile"),
    ],
)
def test_only_control_sequences_are_dropped(text: str, left: str) -> None:
    assert printable(text) == left
