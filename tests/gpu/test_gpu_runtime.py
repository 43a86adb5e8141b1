"""Guarded trainings on a CUDA device: real out-of-memory under a cap, no waiting, checkpoints, leaks."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from autotune.units import MIB
from tests.process.support import ROOT, clean_environment

pytestmark = pytest.mark.gpu

Seen = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where logs and checkpoints are."""
    return tmp_path_factory.mktemp("runtime")


@pytest.fixture(scope="module")
def seen(folder: Path) -> Seen:
    """All trainings, in one process."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "assets" / "runtime" / "on_cuda.py"), str(folder)],
        env=clean_environment(PYTHONPATH=path, CUBLAS_WORKSPACE_CONFIG=":4096:8"),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: Seen = json.loads(done.stdout)
    return found


def test_gradients_of_parts_are_those_of_the_whole_after_a_real_failure_in_an_accumulated_step(seen: Seen) -> None:
    part = seen["degrade"]
    assert part["off"] < 1e-4, "sums in another order, of 36,000 samples"
    assert (part["steps"], part["micro_batches_split"], part["failed_at"]) == (2, 2, 36_000)
    assert part["out_of_memory"] == 1, "known from then on"
    assert part["held_bytes"] < 128 * MIB, "neither the failed attempt nor the step's batches are kept"


def test_the_failure_and_what_is_proposed_are_in_the_log(seen: Seen, folder: Path) -> None:
    lines = [json.loads(line) for line in (folder / "degrade.jsonl").read_text().splitlines()]
    (failure,) = [line for line in lines if line["event"] == "out_of_memory"]
    assert failure["proposed"]["micro_batch"] * failure["proposed"]["accumulate"] == 2 * 36_000
    assert lines[-1]["event"] == "summary" and lines[-1]["proposal"] == seen["degrade"]["proposal"]


def test_a_guarded_step_that_looks_at_the_memory_waits_for_nothing(seen: Seen, folder: Path) -> None:
    assert seen["waits"] == {"steps": 21, "waited": False}
    lines = [json.loads(line) for line in (folder / "waits.jsonl").read_text().splitlines()]
    looks = [line for line in lines if line["event"] == "memory"]
    assert len(looks) == 21
    for look in looks:
        assert 0 < look["allocated_bytes"] <= look["reserved_bytes"] < look["device_used_bytes"]


def test_a_checkpoint_at_the_limit_takes_no_device_memory_and_is_gone_on_from_bit_for_bit(seen: Seen) -> None:
    part = seen["saved"]
    assert "above the limit of" in part["stopped"] and "step 3" in part["stopped"]
    assert (part["step"], part["same"], part["took_bytes"]) == (3, True, 0)


def test_c28_losses_kept_on_the_device_are_told_with_their_rate(seen: Seen) -> None:
    part = seen["leak"]
    (text,) = part["told"]
    assert 4 * MIB <= part["growth_bytes_per_step"] < 4.4 * MIB, "an activation of 4 MiB, and small ones"
    assert "losses of earlier steps are kept with their autograd graph" in text


def test_parts_under_autocast_and_a_scaler_train_as_the_whole_does(seen: Seen) -> None:
    assert seen["half_precision"]["split"] == 3
    assert seen["half_precision"]["off"] < 0.05, (
        "half precision rounds otherwise in parts; a wrong weight is off by half"
    )
