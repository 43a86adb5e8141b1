"""Real signals to a real process; its search blocks until one comes."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.cli.invocation import Invocation
from autotune.cli.signals import Stopped, stoppable

CHILD = """
import signal, sys
from autotune import api
from autotune.cli import app
from autotune.model import Plan, Source

def search(plan, *, storage=None, fresh=False, observer=None):
    try:
        print("searching", file=sys.stderr, flush=True)
        sys.stdin.readline()
    except BaseException as error:
        print("cleaning up after", type(error).__name__, file=sys.stderr, flush=True)
        for _ in range({again}):
            signal.raise_signal(signal.SIGTERM)
        raise

api.plan = lambda ref, **options: Plan(source=Source(ref=ref))
api.search = search
app.main()
"""


def _start(folder: Path, *argv: str, again: int = 0) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD.replace("{again}", str(again)), *argv],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
    )
    assert child.stderr is not None
    assert child.stderr.readline() == "searching\n"
    return child


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_c21_a_stopped_search_says_how_to_go_on(tmp_path: Path, number: signal.Signals, code: int) -> None:
    with _start(tmp_path, "search", "my model.py", "--fresh", "--accumulate", "2", "--", "--fresh") as child:
        child.send_signal(number)
        out, err = child.communicate()
    assert child.returncode == code
    assert out == ""
    assert err == (
        "cleaning up after Stopped\n"
        f"error: stopped by {number.name}; finished probes are kept\n"
        "hint: to continue: autotune search 'my model.py' --accumulate 2 -- --fresh\n"
    )


def test_a_stopped_search_leaves_one_json_document(tmp_path: Path) -> None:
    with _start(tmp_path, "max-batch", "model.py", "--json") as child:
        child.send_signal(signal.SIGTERM)
        out, _ = child.communicate()
    assert child.returncode == 143
    assert json.loads(out)["error"]["kind"] == "interrupted"


def test_a_second_signal_does_not_cut_the_clean_up_short(tmp_path: Path) -> None:
    with _start(tmp_path, "search", "model.py", again=1) as child:
        child.send_signal(signal.SIGTERM)
        _, err = child.communicate()
    assert child.returncode == 143
    assert "finished probes are kept" in err


def test_a_third_signal_ends_a_clean_up_that_hangs(tmp_path: Path) -> None:
    with _start(tmp_path, "search", "model.py", again=2) as child:
        child.send_signal(signal.SIGINT)
        child.communicate()
    assert child.returncode == -signal.SIGTERM


WHILE_IT_BEGINS = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may start its background jobs with it ignored

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "typer":
            for _ in range({times}):
                signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
from autotune.cli.app import main
main()
"""
WHILE_IT_TELLS = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from autotune.cli import app
tell = app._complain

def told(*texts, **more):
    for _ in range({times}):
        signal.raise_signal(signal.SIGINT)
    tell(*texts, **more)

app._complain = told
app.main()
"""
WHILE_IT_ENDS = """
import atexit, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
atexit.register(signal.raise_signal, signal.SIGINT)
from autotune.cli.app import main
main()
"""


def _ended(code: str, *argv: str, times: int = 1) -> tuple[int, str, str]:
    ended = subprocess.run(
        [sys.executable, "-c", code.replace("{times}", str(times)), *argv], capture_output=True, text=True, check=False
    )
    return ended.returncode, ended.stdout, ended.stderr


@pytest.mark.parametrize("times", [1, 2])
def test_a_signal_while_the_program_is_loaded_ends_it_quietly(times: int) -> None:
    assert _ended(WHILE_IT_BEGINS, "--help", times=times) == (130, "", "error: stopped by SIGINT\n")


def test_a_signal_while_an_error_is_told_ends_it_quietly() -> None:
    assert _ended(WHILE_IT_TELLS, "search", "--seed", "x") == (130, "", "error: stopped by SIGINT\n")


def test_a_signal_after_the_last_word_ends_it_quietly() -> None:
    assert _ended(WHILE_IT_ENDS, "--version")[::2] == (-signal.SIGINT, "")  # 130 of shells


def test_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Stopped) as caught, stoppable():
        signal.raise_signal(signal.SIGTERM)
    assert (caught.value.name, caught.value.exit_code) == ("SIGTERM", 143)
    assert signal.getsignal(signal.SIGTERM) is before


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with stoppable():
            signal.raise_signal(signal.SIGINT)
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    ("argv", "command"),
    [
        (["search", "m.py"], "autotune search m.py"),
        (["search", "--fresh", "m.py"], "autotune search m.py"),
        (["search", "m.py", "--allocator", "a:b c"], "autotune search m.py --allocator 'a:b c'"),
    ],
)
def test_the_command_to_go_on_is_the_same_without_starting_afresh(argv: list[str], command: str) -> None:
    assert Invocation("autotune", tuple(argv)).resume_command == command
