"""The file that ``autotune init`` writes is a workload as it stands."""

from pathlib import Path

import torch

from autotune.workload.batch import describe, observed_batch
from autotune.workload.template import MODEL_FILE
from tests.unit.workload_files import load_text, run_python


def test_it_trains(tmp_path: Path) -> None:
    workload = load_text(tmp_path, MODEL_FILE)
    assert workload.recognised[0].why == "model.py has make_model and make_batch"
    torch.manual_seed(0)
    model = workload.make_model()
    optimizer = workload.make_optimizer(model.parameters())
    batch = workload.make_batch(3)
    assert describe(batch) == "tuple(2 x int64[3, 64])"
    assert observed_batch(batch, 3) == 3
    before = workload.loss(model, batch)
    before.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    assert workload.loss(model, batch) < before


def test_its_optional_parts_work_when_they_are_taken_in(tmp_path: Path) -> None:
    text = MODEL_FILE.replace("def make_batch", "def unused_batch")
    lines = [line.removeprefix("# ") if line.startswith(("# def", "#    ")) else line for line in text.splitlines()]
    workload = load_text(tmp_path, "\n".join(lines))
    assert workload.evaluates
    assert workload.data_set_size == 500
    model = workload.make_model().eval()
    workload.evaluate(model, workload.make_batch(2))
    assert workload.loss(model, workload.make_batch(2)).dim() == 0
    shorter = workload.make_shorter_batch(2, 0.75)
    assert describe(shorter) == "tuple(2 x int64[2, 48])"
    assert workload.loss(model, shorter).dim() == 0


def test_it_runs_as_a_program(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(MODEL_FILE)
    assert run_python(tmp_path, "model.py").startswith("loss of an untrained model: ")


def test_its_lines_are_no_longer_than_a_page(tmp_path: Path) -> None:
    assert max(len(line) for line in MODEL_FILE.splitlines()) <= 120
