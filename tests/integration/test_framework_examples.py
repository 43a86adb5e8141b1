"""The examples for other frameworks do what they say."""

import subprocess
import sys
from pathlib import Path

import pytest

from autotune import api
from autotune.report.document import document, to_text
from tests.integration.conftest import Library
from tests.process.support import ROOT, clean_environment

pytestmark = pytest.mark.integrations

EXAMPLES = ROOT / "examples"


def run(name: str, folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        cwd=folder,
        env=clean_environment(AUTOTUNE_STORAGE=str(folder / "ledger.sqlite3"), CUDA_VISIBLE_DEVICES=""),
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_hf_trainer_is_searched_and_its_training_checks_the_file(library: Library, tmp_path: Path) -> None:
    library("transformers")
    plan = api.plan(str(EXAMPLES / "hf_trainer.py"), device="cpu", max_batch=4, recommend=False)
    result = api.search(plan, storage=str(tmp_path / "ledger.sqlite3"))
    assert result.workload.varies and result.workload.evaluates
    assert (result.answer.max_batch, result.workload.data_set_size) == (4, 2000)
    (tmp_path / "autotune.json").write_text(to_text(document(result)))
    said = run("hf_trainer.py", tmp_path, "--batch-size", "8", "--steps", "2")
    assert "loss after 2 steps: " in said
    assert "per_device_train_batch_size: 4 in the file, 8 here" in said


def test_lightning_module_finds_its_batch_and_trains_with_it(library: Library, tmp_path: Path) -> None:
    library("lightning")
    said = run("lightning_module.py", tmp_path, "--memory-limit", "1GiB", "--largest", "8")
    assert "trained 5 steps at batch 8" in said
