"""``autotune watch`` beside a guarded training on a CUDA device: the card by NVML, the training by what it publishes."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from autotune.units import GIB
from tests.process.support import ROOT, clean_environment, wait_for

pytestmark = pytest.mark.gpu

SAME_BYTES = GIB
"""NVML and CUDA are asked one after the other, and count the driver's own memory differently (up to half a GiB)."""


@dataclass
class Training:
    """One that runs, and ``autotune watch`` beside it."""

    folder: Path
    process: subprocess.Popen[str]
    environment: dict[str, str]
    told: dict[str, Any] = field(default_factory=dict)
    """What it said of its last step."""

    def step(self) -> None:
        """Let it take one."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        self.told = json.loads(self.process.stdout.readline())

    def watched(self) -> dict[str, Any]:
        """The document."""
        words = [sys.executable, "-m", "autotune", "watch", "--once", "--json"]
        done = subprocess.run(words, env=self.environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        content: dict[str, Any] = json.loads(done.stdout)
        return content


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Training]:
    """After its first step."""
    folder = tmp_path_factory.mktemp("watch")
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    places = {"AUTOTUNE_LOCK_DIR": str(folder), "AUTOTUNE_STORAGE": str(folder / "ledger.sqlite3")}
    environment = clean_environment(PYTHONPATH=path, **places)
    script = ROOT / "tests" / "assets" / "runtime" / "told_on_cuda.py"
    with subprocess.Popen(
        [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            running = Training(folder, process, environment)
            running.step()
            yield running
        finally:
            process.kill()


def test_a_guarded_training_on_the_card_is_seen_with_its_step_and_memory(training: Training) -> None:
    (seen,) = training.watched()["trainings"]
    status = seen["status"]
    assert (status["pid"], status["step"], status["device"]) == (training.process.pid, 1, "cuda:0")
    assert status["device_uuid"] == training.told["uuid"]
    assert GIB < status["allocated_bytes"] <= status["reserved_bytes"] < status["used_bytes"] < status["capacity_bytes"]
    assert status["capacity_bytes"] == training.told["total"]
    assert abs(status["used_bytes"] - (training.told["total"] - training.told["free"])) < SAME_BYTES
    assert 0 < status["headroom_bytes"] == status["limit_bytes"] - status["peak_used_bytes"]
    assert (status["out_of_memory"], status["leak_bytes_per_step"], seen["script"]) == (0, None, "told_on_cuda.py")


def test_its_next_word_says_how_long_a_step_takes(training: Training) -> None:
    (path,) = training.folder.glob("autotune-trainings-*/*.json")

    def later() -> dict[str, Any]:
        training.step()
        found: dict[str, Any] = json.loads(path.read_text())
        return found if found["step"] > 1 else {}

    status = wait_for(later, "a word a second later")
    assert 0 < status["step_seconds"] < 1.5
    (seen,) = training.watched()["trainings"]
    assert seen["status"]["step"] == status["step"]


@pytest.mark.skipif(find_spec("pynvml") is None, reason="nvidia-ml-py is not installed")
def test_the_card_is_seen_by_nvml_as_cuda_sees_it(training: Training) -> None:
    document = training.watched()
    (seen,) = document["trainings"]
    assert document["driver"]
    cards = {one["device"]: one for one in document["devices"] if one["device"] != "host"}
    card = cards[seen["device"]]
    assert card["uuid"].removeprefix("GPU-").removeprefix("MIG-") == training.told["uuid"].removeprefix("MIG-")
    assert abs(card["total_bytes"] - training.told["total"]) < 0.02 * training.told["total"] + SAME_BYTES
    assert abs(card["used_bytes"] - (training.told["total"] - training.told["free"])) < SAME_BYTES
    assert card["used_bytes"] > training.told["allocated"]
    assert card["tenants"] is not None and card["lock_told"] and card["probed_by"] is None
    if card["uuid"].startswith("GPU-"):
        assert 0 <= card["utilisation"] <= 1 and 10 < card["temperature_celsius"] < 110
        assert 0 < card["power_watts"] < 2000


def test_a_killed_training_is_gone(training: Training) -> None:
    training.process.kill()
    training.process.wait()
    assert training.watched()["trainings"] == []
    assert list(training.folder.glob("autotune-trainings-*/*")) == []
