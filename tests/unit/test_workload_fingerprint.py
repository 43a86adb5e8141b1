"""The fingerprint of a loaded workload: equal exactly when a former answer still holds."""

from pathlib import Path

import pytest
import torch

from autotune.model import Source
from autotune.workload.fingerprint import fingerprint, fingerprint_parts
from autotune.workload.live import pack
from autotune.workload.load import load
from tests.unit.workload_files import process_restored, run_python

MODEL = """
import torch, local_layers
def make_model():
    return torch.nn.Linear(local_layers.WIDTH, 1)
def make_batch(batch_size):
    return torch.zeros(batch_size, local_layers.WIDTH)
"""
PARAMETERS = [("weight", (1, 4), "torch.float32"), ("bias", (1,), "torch.float32")]
PROGRAM = """
from autotune.model import Source
from autotune.workload.fingerprint import fingerprint
from autotune.workload.load import load
import os
source = Source(ref="model.py", directory=os.getcwd())
print(fingerprint(source, load(source), [], ""))
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "local_layers.py").write_text("WIDTH = 4\n")
    (tmp_path / "unrelated.py").write_text("x = 1\n")
    return tmp_path


def now(
    project: Path,
    script_args: tuple[str, ...] = (),
    parameters: list[tuple[str, tuple[int, ...], str]] = PARAMETERS,
    batch: str = "float32[1, 4]",
) -> str:
    source = Source(ref="model.py", script_args=script_args, directory=str(project))
    with process_restored():
        return fingerprint(source, load(source), parameters, batch)


def test_nothing_changed_means_the_same_fingerprint(project: Path) -> None:
    before = now(project)
    (project / "unrelated.py").write_text("x = 2\n")
    (project / "model.py").touch()
    assert now(project) == before
    assert len(before) == 64


def test_the_file_and_its_local_imports_count(project: Path) -> None:
    seen = {now(project)}
    (project / "local_layers.py").write_text("WIDTH = 5\n")
    seen.add(now(project))
    (project / "model.py").write_text(MODEL + "# a comment\n")
    seen.add(now(project))
    assert len(seen) == 3


def test_a_local_import_of_the_same_length_and_second_counts(project: Path) -> None:
    before = now(project)
    (project / "local_layers.py").write_text("WIDTH = 6\n")
    assert now(project) != before


def test_arguments_parameters_and_batch_count(project: Path) -> None:
    changed = [
        now(project),
        now(project, script_args=("--wide",)),
        now(project, parameters=PARAMETERS[:1]),
        now(project, parameters=[("weight", (1, 5), "torch.float32"), PARAMETERS[1]]),
        now(project, parameters=[("weight", (1, 4), "torch.float16"), PARAMETERS[1]]),
        now(project, parameters=[("kernel", (1, 4), "torch.float32"), PARAMETERS[1]]),
        now(project, batch="float32[1, 8]"),
    ]
    assert len(set(changed)) == len(changed)


def test_two_names_of_one_file_differ(tmp_path: Path) -> None:
    head = "import torch\ndef make_batch(batch_size):\n    return torch.zeros(batch_size)\n"
    (tmp_path / "model.py").write_text(head + "def a():\n    return torch.nn.ReLU()\nb = a\n")
    seen = []
    for name in "ab":
        source = Source(ref=f"model.py:{name}", directory=str(tmp_path))
        with process_restored():
            seen.append(fingerprint(source, load(source), [], ""))
    assert seen[0] != seen[1]


def test_a_project_moved_elsewhere_keeps_its_fingerprint(
    project: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    moved = tmp_path_factory.mktemp("moved")
    for name in ("model.py", "local_layers.py"):
        (moved / name).write_text((project / name).read_text())
    assert now(moved) == now(project)


def test_other_processes_and_hash_seeds_agree(project: Path) -> None:
    seen = {run_python(project, "-c", PROGRAM, PYTHONHASHSEED=seed) for seed in ("1", "2")}
    assert len(seen) == 1


def test_live_objects_count_by_their_structure(tmp_path: Path) -> None:
    def now(width: int) -> str:
        source = pack(torch.nn.Linear(4, 4), lambda n: torch.zeros(n, width), path=tmp_path / "live.pkl")
        with process_restored():
            return fingerprint(source, load(source), [], "")

    assert now(4) == now(4)
    assert now(4) != now(5)


def parts_now(project: Path, script_args: tuple[str, ...] = (), batch: str = "float32[1, 4]") -> dict[str, str]:
    source = Source(ref="model.py", script_args=script_args, directory=str(project))
    with process_restored():
        found = fingerprint_parts(source, load(source), PARAMETERS, batch)
    assert len(dict(found)) == len(found), "no part hides another"
    return dict(found)


def differing(before: dict[str, str], after: dict[str, str]) -> set[str]:
    return {name for name in before | after if before.get(name) != after.get(name)}


def test_parts_name_what_changed(project: Path) -> None:
    before = parts_now(project)
    assert {"code of model.py", "code of local_layers.py", "arguments", "parameters", "shape of a batch"} <= set(before)
    assert differing(before, parts_now(project)) == set()
    assert differing(before, parts_now(project, script_args=("--wide",))) == {"arguments"}
    assert differing(before, parts_now(project, batch="float32[1, 5]")) == {"shape of a batch"}
    (project / "local_layers.py").write_text("WIDTH = 5\n")
    assert differing(before, parts_now(project)) == {"code of local_layers.py"}


def test_live_objects_have_one_part_for_their_code(project: Path) -> None:
    def make_model() -> torch.nn.Module:
        return torch.nn.Linear(4, 1)

    source = pack(make_model, path=project / "live.pkl", make_batch=lambda size: torch.zeros(size, 4))
    with process_restored():
        found = dict(fingerprint_parts(source, load(source), PARAMETERS, "b"))
    assert [name for name in found if name.startswith("code")] == ["code"]
