"""Two searches that want the same memory, one of them killed; and the doctor, as it is for users."""

import json
import subprocess
import sys
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

from autotune import api
from autotune.model import ProbeResult
from tests.process.support import ROOT, Tool, clean_environment, run, wait_for


@dataclass
class ForAll(Tool):
    """A search for all the memory that is free: on the CPU only those take turns. Locks of the test's own."""

    locks: Path = Path()

    @property
    def environment(self) -> dict[str, str]:
        return {**super().environment, "AUTOTUNE_LOCK_DIR": str(self.locks)}

    def argv(self, *options: str) -> list[str]:
        words = super().argv()
        at = words.index("--memory-limit")
        return [*words[:at], *words[at + 2 :], *options]


@pytest.fixture
def tools(tmp_path: Path) -> tuple[ForAll, ForAll]:
    folders = [tmp_path / name for name in ("one", "other", "locks")]
    for folder in folders:
        folder.mkdir()
    return ForAll(folders[0], forks=True, locks=folders[2]), ForAll(folders[1], forks=True, locks=folders[2])


def span(probe: ProbeResult) -> tuple[float, float]:
    return probe.started_at.timestamp(), (probe.started_at + timedelta(seconds=probe.seconds)).timestamp()


def probes_of(tool: Tool) -> list[ProbeResult]:
    return [probe for record in tool.searches() for probe in api.show(record.id, tool.storage)[1]]


def test_two_searches_at_once_take_turns_and_both_end_right_although_one_was_killed(
    tools: tuple[ForAll, ForAll],
) -> None:
    one, other = tools
    one.hold(2, 1)
    with one.running() as holding:
        one.wait_until_held(holding)
        with other.running() as waiting:
            wait_for(lambda: f"(pid {holding.pid}, " in other.stderr, "the other one says whom it waits for")
            told = next(line for line in other.stderr.splitlines() if line.startswith("waiting for"))
            assert told.startswith("waiting for the host's memory: ") and "max-batch holding.py" in told

            impatient = run(other.argv("--device-wait", "0"), other.folder, other.environment)
            assert impatient.returncode == 5
            assert "the host's memory is busy: " in impatient.stderr and "--device-wait" in impatient.stderr
            late = run(other.argv("--time-budget", "0.1"), other.folder, other.environment)
            assert late.returncode == 124
            assert "the time budget ended while waiting for the host's memory" in late.stderr

            assert waiting.poll() is None
            below = psutil.Process(holding.pid).children(recursive=True)
            assert len(below) >= 3  # guardian, zygote, probe
            assert not [file for process in below for file in process.open_files() if str(one.locks) in file.path]
            assert [file for file in psutil.Process(holding.pid).open_files() if str(one.locks) in file.path]
            one.let_go()
            holding.kill()  # with processes that want to live on: none of them has the lock
            holding.wait()
            with one.running() as again:
                assert (again.wait(180), waiting.wait(180)) == (0, 0), one.stderr + other.stderr
    assert (one.folder / "stdout").read_text() == (other.folder / "stdout").read_text() == "2\n"
    spans = sorted(span(probe) for probe in (*probes_of(one), *probes_of(other)))
    assert "went by waiting for probes of other searches" in other.stderr
    assert len(spans) in (6, 7)  # less may be free after the kill: then what fitted before it has to be shown again
    assert all(end <= begin + 0.05 for (_, end), (begin, _) in pairwise(spans)), "never both at once"


def test_the_doctor_examines_this_machine_without_loading_torch_itself(tmp_path: Path) -> None:
    code = (
        "import sys; from autotune.cli.app import run; code = run(['doctor', '--json']);"
        " assert 'torch' not in sys.modules; sys.exit(code)"
    )
    secret = "postgresql://anna:geheim@127.0.0.1:1/ledger"
    environment = clean_environment(AUTOTUNE_LOCK_DIR=str(tmp_path), AUTOTUNE_STORAGE=str(tmp_path / "ledger.sqlite3"))
    found = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (found.returncode, found.stderr) == (0, "")
    facts = {(one["section"], one["name"]): one for one in json.loads(found.stdout)["facts"]}
    assert facts["PyTorch", "computes on the CPU"]["value"] == "yes"
    assert facts["ledger", "place"]["value"].endswith("none yet; the first search makes it")
    assert {section for section, _ in facts} >= {"versions", "command", "devices", "locks", "limits", "optional"}
    assert not (tmp_path / "ledger.sqlite3").exists()
    (tmp_path / "torch.py").write_text("raise ImportError('libcudart.so.12: cannot open shared object file')\n")
    environment |= {"AUTOTUNE_STORAGE": secret, "PATH": str(tmp_path), "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    broken = run([sys.executable, "-m", "autotune", "doctor"], tmp_path, environment)
    assert broken.returncode == 5 and "no search can run here" in broken.stdout
    assert "geheim" not in broken.stdout + broken.stderr
    assert "cannot be loaded: ImportError: libcudart.so.12" in " ".join(broken.stdout.split())
    assert "'autotune' is not on PATH" in " ".join(broken.stdout.split())
