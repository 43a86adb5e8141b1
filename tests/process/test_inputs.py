"""What users hand over: batches of every form, noisy files, files here and there, and files with a mistake in them."""

import json
import re
import sys
from pathlib import Path

import pytest

from autotune import api
from autotune.cli import app
from autotune.model import Budget, Form, Outcome, Question, Reason
from autotune.probe.launcher import Launcher
from autotune.units import GIB
from tests.process.support import ASSETS, FORKS, ROOT, clean_environment, forking_environment, run

FORMS = ["tensor", "tuple", "list", "dict", "dataclass", "named tuple", "nested"]
"""As in batches.py, which gives the n-th of them at batch size n."""

BUDGET = Budget(limit_bytes=GIB, source="--memory-limit", capacity_bytes=GIB, others_bytes=0, headroom_bytes=0)

TASK = """
import torch
from torch import nn

{imports}

class Task:
    def make_model(self):
        return Net()

    def make_batch(self, batch_size):
        return torch.ones(batch_size, 4), torch.ones(batch_size, 1)
"""
NET = """
from torch import nn

class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(4, 1))
"""


def max_batch(folder: Path, *argv: str, environment: dict[str, str] | None = None) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of ``max-batch`` in a folder; what certifies is forked, unless the environment is given."""
    command = [sys.executable, "-m", "autotune", "max-batch", "--device", "cpu", "--storage", "ledger", *argv]
    done = run(command, folder, environment or forking_environment())
    return done.returncode, done.stdout, done.stderr


def test_c36_batches_of_every_form_reach_the_loss_as_they_were_made() -> None:
    plan = api.plan(str(ASSETS / "batches.py"), script_args=["each"], device="cpu")
    with Launcher(plan.source, timeout_s=60, seed=0) as launcher:
        launcher.describe("cpu", 1)
        probes = {
            name: launcher.probe(
                Question(batch_size=size, form=Form.SHORT, reason=Reason.START, settings=plan.settings), BUDGET, 0
            )
            for size, name in enumerate(FORMS, 1)
        }
    assert {name: (probe.outcome, probe.failure) for name, probe in probes.items()} == dict.fromkeys(
        FORMS, (Outcome.FITS, None)
    )
    seen = {name: probe.measurement for name, probe in probes.items()}
    assert [seen[name].observed_batch for name in FORMS] == list(range(1, len(FORMS) + 1))
    inputs, both, nested = 16, 20, 36  # bytes a sample
    sizes = [1 * inputs, 2 * both, 3 * both, 4 * both, 5 * inputs, 6 * both, 7 * nested]
    assert [seen[name].composition.batch_bytes for name in FORMS] == sizes


UNUSUAL = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(64, 4, sparse=True)
        self.head = torch.compile(nn.Linear(4, 1), backend="eager")

    def forward(self, ids):
        return self.head(self.bag(ids))

def make_model():
    return Net()

def make_batch(batch_size):
    graph = torch.eye(batch_size)
    texts = torch.nested.nested_tensor([torch.ones(3 + n, 4) for n in range(batch_size)], layout=torch.jagged)
    return {"graph": graph.to_sparse(), "again": graph.to_sparse_csr(), "texts": texts}

def loss(model, batch):
    ids = torch.arange(len(batch["texts"].offsets()) - 1)[:, None]
    return torch.sparse.mm(batch["graph"], model(ids)).mean() + model.head(batch["texts"].values()).mean()

def make_optimizer(params):
    return torch.optim.SGD(params, lr=0.1)
"""


def test_sparse_and_jagged_tensors_and_parts_that_the_file_compiled_itself_are_probed(tmp_path: Path) -> None:
    (tmp_path / "unusual.py").write_text(UNUSUAL)
    plan = api.plan(str(tmp_path / "unusual.py"), device="cpu")
    with Launcher(plan.source, timeout_s=60, seed=0) as launcher:
        launcher.describe("cpu", 1)
        question = Question(batch_size=3, form=Form.SHORT, reason=Reason.START, settings=plan.settings)
        probe = launcher.probe(question, BUDGET, 0)
    assert (probe.outcome, probe.failure) == (Outcome.FITS, None)
    assert (probe.measurement.observed_batch, probe.measurement.steps_executed) == (3, 3)
    composition, ints, floats = probe.measurement.composition, 8, 4
    graph, again, texts = 3 * (2 * ints + floats), (4 + 3) * ints + 3 * floats, 4 * ints + (3 + 4 + 5) * 4 * floats
    assert composition.batch_bytes == graph + again + texts
    assert composition.gradients_bytes == 3 * (ints + 4 * floats) + (4 + 1) * floats  # three rows of the table


def test_a_noisy_workload_with_arguments_of_its_own_leaves_one_json_document_on_stdout(tmp_path: Path) -> None:
    code, out, err = max_batch(
        tmp_path,
        *(str(ASSETS / "batches.py"), "--max-batch", "2", "--json", "--", "nested", "noise"),
        environment=clean_environment(),
    )
    assert code == 0, err
    document = json.loads(out)
    assert (document["complete"], document["batch"]["max_batch"]) == (True, 2)
    assert "noise" not in err
    (record,) = api.searches(str(tmp_path / "ledger"))
    probe = api.show(record.id, str(tmp_path / "ledger"))[1][-1]
    assert probe.stdout_tail.count('{"complete": true, "batch": {"max_batch": 999}}') == 9  # at import and in 8 steps
    assert probe.stderr_tail.count("noise") == 9


def test_a_relative_path_from_another_folder_finds_what_lies_next_to_the_file(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    (there / "work.py").write_text(TASK.format(imports="from layers import Net"))
    (there / "layers.py").write_text(NET)
    assert max_batch(here, "../there/work.py:Task", "--max-batch", "1")[:2] == (0, "1\n")


def test_a_module_of_a_package_is_found_from_another_folder(tmp_path: Path) -> None:
    here, package = tmp_path / "here", tmp_path / "project" / "nets"
    here.mkdir()
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "task.py").write_text(TASK.format(imports="from .layers import Net"))
    (package / "layers.py").write_text(NET)
    path = f"{FORKS}:{package.parent}:{ROOT}"
    environment = clean_environment(PYTHONPATH=path)
    assert max_batch(here, "nets.task:Task", "--max-batch", "1", environment=environment)[:2] == (0, "1\n")


GOOD = """
from torch import nn, ones

def make_model():
    return nn.Linear(4, 1)

def make_batch(batch_size):
    return ones(batch_size, 4)

def loss(model, batch):
    return model(batch).mean()
"""
MISTAKES = {
    "no such file": (None, "other.py", 2, "other.py: no such file in", "hint: write a model file first: autotune init"),
    "almost the name of a file": (GOOD, "works.py", 2, "works.py: no such file in", "hint: did you mean work.py?"),
    "a wrong name": (GOOD, "work.py:make_modl", 2, "work.py has no make_modl", "make_model"),
    "a syntax error": (
        GOOD.replace("def make_model():", "def make_model("),
        "work.py",
        4,
        "work.py raised SyntaxError while autotune was loading it",
        "hint: correct line",
    ),
    "an error at import": (
        GOOD + "\nones(2, 3) @ ones(2, 3)\n",
        "work.py",
        4,
        "work.py raised RuntimeError while autotune was loading it: mat1 and mat2 shapes cannot be multiplied",
        "line 13, in <module>",
    ),
    "no make_batch": (
        GOOD.replace("make_batch", "batches"),
        "work.py",
        4,
        "make_model has neither make_batch nor make_dataset beside it",
        "hint: found `batches`; rename it to make_batch",
    ),
    "a make_batch without arguments": (
        GOOD.replace("make_batch(batch_size)", "make_batch()"),
        "work.py",
        4,
        "make_batch in work.py takes ()",
        "hint: write `def make_batch(batch_size):`",
    ),
    "a loss that is a float": (
        GOOD.replace("mean()", "mean().item()"),
        "work.py",
        4,
        "loss(model, batch) returned the float",
        "hint: return the tensor itself: without .item() and float()",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named_with_what_to_do_next_and_without_our_own_frames(
    tmp_path: Path, mistake: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text, ref, expected_code, message, next_step = MISTAKES[mistake]
    if text is not None:
        (tmp_path / "work.py").write_text(text)
    code = app.run(["max-batch", "--device", "cpu", "--storage", "ledger", ref, "--max-batch", "1"])
    out, err = capsys.readouterr()
    assert (code, out) == (expected_code, ""), err
    (error,) = (line for line in err.splitlines() if line.startswith("error: "))
    assert message in error
    assert next_step in err
    assert re.search(r"^hint: \S", err, re.MULTILINE)
    assert str(ROOT / "autotune") not in err


def test_the_file_that_init_writes_is_searched_as_it_is(tmp_path: Path) -> None:
    assert run([sys.executable, "-m", "autotune", "init", "model.py"], tmp_path).returncode == 0
    assert max_batch(tmp_path, "model.py", "--max-batch", "1")[:2] == (0, "1\n")
