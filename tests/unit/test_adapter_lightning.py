"""LightningModules as workloads: what is called, where batches come from, what is refused. Without Lightning itself."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from autotune.apply import Applied
from autotune.errors import WorkloadError
from autotune.model import OptimizerKind, Settings
from autotune.workload.adapters.table import live
from autotune.workload.task import Workload
from tests.unit.planted_frameworks import lightning
from tests.unit.workload_files import load_text

HEAD = """
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset
from {package}.core.module import LightningModule
from {package}.core.datamodule import LightningDataModule
called = []
"""
STEP = """
    def training_step(self, batch, batch_idx):
        called.append(("train", batch_idx, self.trainer.training))
        loss = ((self.net(batch[0]) - batch[1]) ** 2).mean()
        self.log("loss", loss, prog_bar=True)
        return loss
"""
OPTIMIZERS = """
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
"""
LIT = (
    """
class Lit(LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(4, 1)
"""
    + STEP
)
DATA = """
class Data(LightningDataModule):
    def setup(self, stage):
        called.append(("setup", stage))
        self.rows = TensorDataset(torch.zeros(50, 4), torch.zeros(50, 1))
    def train_dataloader(self):
        return DataLoader(self.rows, batch_size=7, shuffle=True)
"""


@pytest.fixture(params=["lightning.pytorch", "pytorch_lightning"])
def package(request: pytest.FixtureRequest) -> Iterator[str]:
    """Either name of the framework."""
    with lightning(request.param):
        yield request.param


@pytest.fixture
def planted() -> Iterator[None]:
    with lightning():
        yield


def written(folder: Path, text: str, name: str = "", package: str = "lightning.pytorch") -> Workload:
    return load_text(folder, HEAD.format(package=package) + text, name)


def found(workload: Workload) -> dict[str, str]:
    return {line.what: line.found for line in workload.recognised}


def called(workload: Workload) -> list[Any]:
    module = workload.make_model()
    return list(type(module).training_step.__globals__["called"])  # type: ignore[attr-defined]


def test_a_module_and_its_data_module_are_found_under_both_names(tmp_path: Path, package: str) -> None:
    workload = written(tmp_path, LIT + OPTIMIZERS + DATA, package=package)
    assert found(workload) == {
        "model": "Lit(), a Lit",
        "batch": "the largest samples of Data.train_dataloader()",
        "train step": "Lit.training_step",
        "optimizer": "Lit.configure_optimizers",
        "evaluate": "none",
        "data set": "that of Data.train_dataloader()",
        "lengths": "those in make_dataset()",
    }
    assert (workload.data_set_size, workload.evaluates, workload.notes) == (50, False, ())
    model, batch = workload.make_model(), workload.make_batch(5)
    assert [tuple(part.shape) for part in batch] == [(5, 4), (5, 1)]  # type: ignore[attr-defined]
    workload.loss(model, batch).backward()  # type: ignore[no-untyped-call]
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert called(workload) == [("setup", "fit"), ("train", 0, True)]


@pytest.mark.usefixtures("planted")
def test_an_object_and_a_function_that_returns_one_are_taken_by_name(tmp_path: Path) -> None:
    text = LIT + OPTIMIZERS + DATA + "lit = Lit()\ndef make():\n    return Lit()\n"
    assert found(written(tmp_path, text, "lit"))["model"] == "lit, a Lit"
    assert found(written(tmp_path, text))["model"] == "lit, a Lit"
    made = written(tmp_path, text, "make")
    assert found(made)["model"] == "make(), a Lit"
    assert made.make_model() is not made.make_model()


@pytest.mark.usefixtures("planted")
def test_batches_that_the_file_makes_come_first(tmp_path: Path) -> None:
    text = (
        LIT
        + OPTIMIZERS
        + "def make_batch(batch_size):\n    return torch.zeros(batch_size, 4), torch.ones(batch_size, 1)\n"
    )
    workload = written(tmp_path, text + "batch_dim = 1\n")
    assert found(workload)["batch"] == "make_batch(batch_size)"
    assert found(workload)["samples"] == "counted by dimension 1 of each tensor"
    assert found(workload)["train step"] == "Lit.training_step"
    assert float(workload.loss(workload.make_model(), workload.make_batch(3)).detach()) >= 0


@pytest.mark.usefixtures("planted")
def test_a_make_loader_counts_in_a_call_and_not_in_a_file(tmp_path: Path) -> None:
    own = "def make_loader(batch_size):\n    return DataLoader(TensorDataset(torch.ones(9, 4), torch.ones(9, 1)), batch_size)\n"
    of_file = written(tmp_path, LIT + OPTIMIZERS + DATA + own)
    assert found(of_file)["batch"] == "the largest samples of Data.train_dataloader()"
    module: Any = of_file.make_model()
    make_loader = type(module).training_step.__globals__["make_loader"]
    found_live = live({"make_model": module, "make_loader": make_loader}, "passed by the caller")
    assert found_live is not None
    workload = Workload("live", found_live.parts, found_live.recognised)
    assert found(workload)["batch"] == "the worst batches of make_loader(batch_size)"
    assert (workload.data_set_size, float(workload.make_batch(3)[0].mean())) == (9, 1.0)  # type: ignore[index]


FORMS = {
    "alone": "optimizer",
    "in a list": "[optimizer]",
    "with schedules": "([optimizer], [schedule])",
    "in a dict": "{'optimizer': optimizer, 'lr_scheduler': {'scheduler': schedule, 'interval': 'step'}}",
    "in a tuple of dicts": "({'optimizer': optimizer, 'lr_scheduler': schedule},)",
}


@pytest.mark.usefixtures("planted")
@pytest.mark.parametrize("form", FORMS)
def test_the_optimizer_is_found_in_every_form_and_can_be_made_anew(tmp_path: Path, form: str) -> None:
    configured = f"""
    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.1)
        steps = self.trainer.estimated_stepping_batches
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.2, total_steps=steps)
        return {FORMS[form]}
"""
    workload = written(tmp_path, LIT + configured + DATA)
    optimizer = workload.make_optimizer(workload.make_model().parameters())
    assert type(optimizer) is torch.optim.AdamW
    applied = Applied(Settings(optimizer=OptimizerKind.FOREACH), torch.device("cpu"))
    assert applied.reimplement(optimizer).defaults["foreach"] is True


@pytest.mark.usefixtures("planted")
@pytest.mark.parametrize(
    ("returned", "told"),
    [
        ("None", "no optimizers"),
        ("[torch.optim.SGD(self.parameters(), lr=1), torch.optim.SGD(self.parameters(), lr=1)]", "2 optimizers"),
    ],
)
def test_no_optimizer_or_several_are_refused(tmp_path: Path, returned: str, told: str) -> None:
    workload = written(tmp_path, LIT + f"    def configure_optimizers(self):\n        return {returned}\n" + DATA)
    model = workload.make_model()
    with pytest.raises(WorkloadError, match=told):
        workload.make_optimizer(model.parameters())


@pytest.mark.usefixtures("planted")
def test_a_module_that_optimizes_by_hand_is_refused_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"Lit optimizes by hand \(automatic_optimization = False\)") as raised:
        written(tmp_path, LIT + "    automatic_optimization = False\n" + OPTIMIZERS + DATA)
    assert "loss(model, batch)" in raised.value.hint


@pytest.mark.usefixtures("planted")
@pytest.mark.parametrize(
    ("text", "told"),
    [
        (LIT + DATA, "Lit has no configure_optimizers"),
        (LIT + OPTIMIZERS, "Lit has no train_dataloader, and there is no LightningDataModule beside it"),
        (
            LIT.replace("(self)", "(self, width)") + OPTIMIZERS + DATA,
            "Lit in model.py cannot be made without arguments",
        ),
        (LIT + OPTIMIZERS + DATA + DATA.replace("Data(", "Other("), "several LightningDataModules: Data, Other"),
        (LIT + OPTIMIZERS + LIT.replace("Lit(", "Other(") + OPTIMIZERS + DATA, "several LightningModules: Lit, Other"),
        (
            LIT + OPTIMIZERS + "    def train_dataloader(self):\n        return {'a': [1], 'b': [2]}\n",
            "Lit.train_dataloader\\(\\) returns several loaders",
        ),
    ],
)
def test_what_cannot_be_probed_is_said(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(WorkloadError, match=told) as raised:
        written(tmp_path, text)
    assert raised.value.hint


OWN_BATCHES = """
    def train_dataloader(self):
        return ((torch.zeros(self.SIZE, 4), torch.zeros(self.SIZE, 1)) for _ in range(3))
"""


@pytest.mark.usefixtures("planted")
@pytest.mark.parametrize(
    ("size", "init"),
    [("batch_size", "self.batch_size = 2"), ("hparams['batch_size']", "self.hparams = {'batch_size': 2}")],
)
def test_a_loader_that_batches_by_itself_is_made_anew_with_the_size_set(tmp_path: Path, size: str, init: str) -> None:
    text = LIT.replace("self.net =", f"{init}\n        self.net =") + OPTIMIZERS + OWN_BATCHES.replace("SIZE", size)
    workload = written(tmp_path, text)
    assert [len(workload.make_batch(rows)[0]) for rows in (5, 11)] == [5, 11]  # type: ignore[index]
    assert found(workload)["batch"] == "the first batch of Lit.train_dataloader()"


@pytest.mark.usefixtures("planted")
def test_a_loader_that_batches_by_itself_needs_an_attribute_for_the_size(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="neither it nor the module has batch_size") as raised:
        written(tmp_path, LIT + OPTIMIZERS + OWN_BATCHES.replace("self.SIZE", "2"))
    assert "self.batch_size" in raised.value.hint


@pytest.mark.usefixtures("planted")
def test_hooks_that_hold_memory_are_called_where_lightning_calls_them(tmp_path: Path) -> None:
    hooks = """
    def on_fit_start(self): called.append("fit")
    def on_train_epoch_start(self): called.append("epoch")
    def on_before_batch_transfer(self, batch, dataloader_idx):
        called.append("before")
        return batch
    def on_after_batch_transfer(self, batch, dataloader_idx):
        called.append("after")
        return [batch[0] + 1, batch[1]]
"""
    workload = written(tmp_path, LIT + OPTIMIZERS + hooks + DATA)
    model = workload.make_model()
    for _ in range(2):
        workload.loss(model, workload.make_batch(2))
    train = ("train", 0, True)
    assert called(workload)[1:] == ["before", "fit", "epoch", "after", train, "before", "after", train]


VALIDATION = """
    def validation_step(self, batch, batch_idx):
        assert not torch.is_grad_enabled() and self.trainer.validating and not self.trainer.training
        called.append(("validate", tuple(batch[0].shape)))
        self.log("a", 1)
    def on_validation_epoch_end(self): called.append("end")
    def val_dataloader(self):
        return DataLoader(TensorDataset(torch.zeros(30, 4, 9), torch.zeros(30, 1)), batch_size=2)
"""


@pytest.mark.usefixtures("planted")
def test_validation_takes_as_many_samples_of_its_own_loader_and_training_goes_on(tmp_path: Path) -> None:
    workload = written(tmp_path, LIT + OPTIMIZERS + VALIDATION + DATA)
    model = workload.make_model()
    workload.evaluate(model, workload.make_batch(6))
    workload.loss(model, workload.make_batch(6))
    assert found(workload)["evaluate"] == "Lit.validation_step"
    assert called(workload)[1:] == [("validate", (6, 4, 9)), "end", ("train", 0, True)]


@pytest.mark.usefixtures("planted")
def test_what_the_stand_in_of_the_trainer_has_not_is_said(tmp_path: Path) -> None:
    step = "    def training_step(self, batch):\n        return self.trainer.num_sanity_val_steps\n"
    workload = written(tmp_path, LIT.replace(STEP, step) + OPTIMIZERS + DATA)
    with pytest.raises(AttributeError, match=r"self\.trainer has no num_sanity_val_steps while autotune probes"):
        workload.loss(workload.make_model(), workload.make_batch(2))


@pytest.mark.usefixtures("planted")
@pytest.mark.parametrize("returned", ["None", "{'logits': 1}"])
def test_a_step_without_a_loss_is_refused(tmp_path: Path, returned: str) -> None:
    step = f"    def training_step(self, batch):\n        return {returned}\n"
    workload = written(tmp_path, LIT.replace(STEP, step) + OPTIMIZERS + DATA)
    with pytest.raises(WorkloadError, match="training_step returned"):
        workload.loss(workload.make_model(), workload.make_batch(2))


@pytest.mark.usefixtures("planted")
def test_hooks_that_are_left_out_are_named(tmp_path: Path) -> None:
    workload = written(tmp_path, LIT + OPTIMIZERS + "    def optimizer_step(self, *args): ...\n" + DATA)
    assert workload.notes == ("Lit.optimizer_step is not called: probes do what Lightning does without it",)
