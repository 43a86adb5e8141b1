"""The command as a process of its own: what it imports, and what it does when nobody reads."""

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from autotune.storage.store import Store
from tests.cli.results import RECORD

HEAVY = [
    "torch",
    "sqlalchemy",
    "alembic",
    "rich",
    "numpy",
    "psutil",
    "autotune.probe.launcher",
    "autotune.storage.store",
]
IMPORTS = """
import json, sys
from autotune.cli.app import run
code = run(json.loads(sys.argv[1]))
print(json.dumps([code, [name for name in json.loads(sys.argv[2]) if name in sys.modules]]))
"""
FAKED = """
from dataclasses import replace
from autotune import api, ledger
from autotune.cli import app
from tests.cli.conftest import FakeApi
from tests.cli.results import SUMMARY
ledger.runs = lambda **options: ((SUMMARY,), ())
fake = FakeApi()
for name in ("plan", "search", "inspect", "show"):
    setattr(api, name, getattr(fake, name))
app.main()
"""
ROOT = Path(__file__).parents[2]


def _imported(argv: list[str], names: list[str]) -> object:
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS, json.dumps(argv), json.dumps(names)], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("argv", [["--help"], ["search", "--help"], ["runs", "--help"], ["--version"], []])
def test_help_imports_nothing_heavy(argv: list[str]) -> None:
    assert _imported(argv, HEAVY) == [0, []]


def test_the_first_help_needs_no_pydantic_either() -> None:
    # Further in, typer itself checks the options of the root with it.
    assert _imported(["--help"], ["pydantic"]) == [0, []]


def test_a_list_of_searches_loads_little(tmp_path: Path) -> None:
    # pydantic is not among these: typer reads options with it.
    unneeded = ["torch", "optuna", "alembic", "sqlalchemy.orm", "jinja2", "plotly", "numpy", "psutil", "filelock"]
    rooms = ["autotune." + name for name in ("storage.store", "session", "front", "knobs", "report.document", "probe")]
    with Store.open(str(tmp_path / "ledger")) as store:
        store.begin(RECORD)
    argv = ["runs", "ls", "--storage", str(tmp_path / "ledger")]
    assert _imported(argv, [*unneeded, *rooms]) == [0, []]
    assert _imported([*argv, "--json"], ["torch", "sqlalchemy.orm", "autotune.storage.store"]) == [0, []]


def test_the_package_can_be_run_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "autotune", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"autotune {version('autotune-torch')}\n"


def test_a_shell_can_complete_commands() -> None:
    environment = {**os.environ, "_AUTOTUNE_COMPLETE": "complete_bash", "COMP_WORDS": "autotune ma", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "autotune"], capture_output=True, text=True, env=environment, check=False
    )
    assert done.stdout.split() == ["max-batch"]


@pytest.mark.parametrize("argv", [["--help"], ["schema"], ["runs", "ls"], ["search", "model.py", "-q"]])
def test_a_result_that_nobody_reads_ends_quietly(argv: list[str], tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-c", FAKED, *argv],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    os.close(writer)
    assert done.stderr == ""
    assert done.returncode == 141


def test_progress_that_nobody_reads_does_not_end_a_search(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-c", FAKED, "search", "model.py"],
        stdout=subprocess.PIPE,
        stderr=writer,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    os.close(writer)
    assert done.returncode == 0
    assert done.stdout.startswith("max batch 27")
    assert (tmp_path / "autotune.json").exists()


def test_a_name_that_the_encoding_lacks_does_not_end_a_command(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "autotune", "init", "modèle.py"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        check=False,
    )
    assert done.returncode == 0
    assert done.stdout.startswith("wrote mod\\xe8le.py;")


def _in_a_shell(command: str, tmp_path: Path) -> tuple[int, str, str]:
    words = f'exec "{sys.executable}" -m autotune {command}'
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "AUTOTUNE_STORAGE": str(tmp_path / "ledger")}
    done = subprocess.run(
        ["bash", "-c", words], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize("command", ["schema", "search --help"])
def test_a_full_disk_behind_stdout_is_trouble_and_no_bug(command: str, tmp_path: Path) -> None:
    code, _, err = _in_a_shell(f"{command} >/dev/full", tmp_path)
    assert code == 5
    assert err == "error: cannot write: No space left on device\nhint: make room on the disk: df -h\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_an_error_keeps_its_exit_code_where_no_stream_has_room(tmp_path: Path) -> None:
    assert _in_a_shell("runs show zz --json >/dev/full 2>/dev/full", tmp_path)[0] == 2


def test_no_file_takes_the_place_of_a_closed_stream(tmp_path: Path) -> None:
    # Else the file that is opened next is stdout, for this process and its children.
    assert _in_a_shell("init >&- 2>&-", tmp_path) == (0, "", "")
    assert (tmp_path / "model.py").read_text().startswith('"""')
    assert _in_a_shell("schema --of nothing 2>&-", tmp_path) == (2, "", "")
