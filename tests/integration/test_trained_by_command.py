"""Scripts with other libraries' trainers, tuned unchanged under a real limit: their loaders, accumulation, validation, logs."""

import json
import os
import sys
from pathlib import Path

import pytest

from autotune import api
from autotune.model import Budget, Form, Question, Reason, Settings
from autotune.probe.command.launcher import CommandLauncher
from autotune.probe.devices import look_at_device
from autotune.units import parse_bytes
from autotune.workload.command import parse_command
from tests.integration.conftest import Library
from tests.process.support import ROOT, run

pytestmark = pytest.mark.integrations
STEP = 64
"""Between two sizes, 16 MiB of activations in each layer: far above what a run differs from another."""


@pytest.mark.parametrize(
    ("library_name", "script", "options", "limit"),
    [
        (
            "transformers",
            "with_trainer.py",
            ("--per_device_train_batch_size", "{batch}", "--output_dir", "{scratch}"),
            "512MiB",
        ),
        ("lightning", "with_lightning.py", ("--batch_size", "{batch}", "--dir", "{scratch}"), "512MiB"),
    ],
)
def test_a_script_is_tuned_unchanged_to_the_limit_that_single_runs_show(
    library: Library,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    library_name: str,
    script: str,
    options: tuple[str, ...],
    limit: str,
) -> None:
    library(library_name)
    for name, value in {"OMP_NUM_THREADS": "1", "MALLOC_MMAP_THRESHOLD_": "131072", "PYTHONPATH": str(ROOT)}.items():
        monkeypatch.setenv(name, value)
    words = (sys.executable, str(ROOT / "tests" / "assets" / "commands" / script), *options)
    folder, storage = tmp_path / "run", str(tmp_path / "ledger")
    folder.mkdir()
    sizes = ["--multiple-of", str(STEP), "--start-batch", str(2 * STEP)]
    own = ["--device", "cpu", "--memory-limit", limit, *sizes, "--storage", storage]
    argv = [sys.executable, "-m", "autotune", "max-batch", *own, "--json"]
    done = run([*argv, "--", *words], folder, dict(os.environ), timeout_s=400)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    answer = document["batch"]["max_batch"]
    assert document["batch"]["refuted_at"] == answer + STEP
    assert list(folder.iterdir()) == [], "logs and checkpoints went to {scratch}"
    (record,) = api.searches(storage)
    probes = api.show(record.id, storage)[1]
    certificate = next(one for one in probes if one.form is Form.LONG and one.batch_size == answer)
    measurement = certificate.measurement
    assert (measurement.steps_executed, measurement.micro_batches, measurement.observed_batch) == (8, 2, answer)
    assert measurement.data_set_size == 2000
    with CommandLauncher(parse_command(words, (), folder), timeout_s=120, seed=0) as launcher:
        launcher.machine = look_at_device("cpu")
        launcher.preload("cpu")
        bytes_ = parse_bytes(limit)
        budget = Budget(limit_bytes=bytes_, source="test", capacity_bytes=bytes_, others_bytes=0, headroom_bytes=0)
        for size in (answer, answer + STEP):
            question = Question(batch_size=size, form=Form.LONG, reason=Reason.CERTIFY, settings=Settings())
            assert launcher.probe(question, budget, 0).fits is (size == answer)
