"""Guarded trainings with real memory and real deaths, in processes of their own."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from autotune.units import MIB
from tests.process.support import ROOT, clean_environment

ASSETS = ROOT / "tests" / "assets" / "runtime"


def printed(file: str, *args: object) -> list[dict[str, Any]]:
    """What a script printed, a line of JSON each, once it has ended well. Large tensors are mapped one by one."""
    done = subprocess.run(
        [sys.executable, str(ASSETS / file), *map(str, args)],
        env=clean_environment(MALLOC_MMAP_THRESHOLD_="131072"),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def tight(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """One process for three trainings, and where their logs are: most of its time goes into importing PyTorch."""
    folder = tmp_path_factory.mktemp("tight")
    return folder, printed("tight.py", folder)


def test_c28_numbers_that_are_kept_are_no_leak(tight: tuple[Path, list[dict[str, Any]]]) -> None:
    clean = tight[1][0]
    assert (clean["told"], clean["growth_bytes_per_step"]) == ([], None)


def test_c28_losses_kept_with_their_graph_are_told_before_they_end_the_training(
    tight: tuple[Path, list[dict[str, Any]]],
) -> None:
    leak = tight[1][1]
    (text,) = leak["told"]
    assert 0.95 * MIB < leak["growth_bytes_per_step"] < 1.1 * MIB, "an activation of 1 MiB, and small ones"
    assert "15 losses of earlier steps are kept with their autograd graph" in text
    assert "runs out at about step" in text


def test_a_batch_that_does_not_fit_is_trained_on_in_parts_and_the_training_goes_on(
    tight: tuple[Path, list[dict[str, Any]]],
) -> None:
    folder, (_, _, seen) = tight
    assert seen["off"] < 1e-5, "sums in another order"
    assert (seen["steps"], seen["micro_batches_split"]) == (2, 2)
    assert seen["out_of_memory"] in (1, 2)  # once, or in a half as well; not again in the second step
    assert seen["proposal"]["micro_batch"] * seen["proposal"]["accumulate"] == 8192
    events = [json.loads(line)["event"] for line in (folder / "degrade.jsonl").read_text().splitlines()]
    assert events == ["out_of_memory", "memory", "memory", "summary"]


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_a_writer_that_is_killed_leaves_the_old_checkpoint_whole(tmp_path: Path) -> None:
    half_way, before = printed("killed_while_saving.py", tmp_path)
    for death in (half_way, before):
        assert death == {
            "reached": "here",
            "signal": 9,
            "left": [".emergency.pt.PID.tmp", "emergency.pt"],
            "step": 1,
            "same": True,
            "files": ["emergency.pt"],
        }
