"""Emergency checkpoints: whole or not there, safe to read, and a training goes on from them bit for bit."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from autotune.errors import EnvironmentTrouble, MemoryWarning, UsageError
from autotune.runtime import Guard, load_checkpoint, save_checkpoint
from tests.unit.planted_trainings import Failing, make_batch, mean_square


class Training:
    """With dropout, momentum, a schedule, a scaler, and noise from every generator there is."""

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)
        self.model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Dropout(0.3), nn.Linear(16, 5))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, 0.02, total_steps=40)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=2)

    def step(self) -> None:
        batch = torch.randn(8, 6) + random.random() + float(np.random.rand())
        self.optimizer.zero_grad()
        loss = F.mse_loss(self.model(batch), torch.zeros(8, 5))
        torch.autograd.backward(self.scaler.scale(loss))
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.schedule.step()

    def train(self, steps: int) -> "Training":
        for _ in range(steps):
            self.step()
        return self

    @property
    def kept(self) -> dict[str, Any]:
        return {"scaler": self.scaler, "others": {"schedule": self.schedule}}

    def save(self, path: Path, step: int) -> Path:
        return save_checkpoint(path, self.model, self.optimizer, step=step, **self.kept)


def test_a_training_goes_on_bit_for_bit(tmp_path: Path) -> None:
    training = Training(1).train(5)
    path = training.save(tmp_path / "deep" / "emergency.pt", 5)
    training.train(4)
    other = Training(2).train(1)
    assert load_checkpoint(path).restore(other.model, other.optimizer, **other.kept) == 5
    other.train(4)
    wanted = training.model.state_dict()
    assert all(torch.equal(value, wanted[name]) for name, value in other.model.state_dict().items())
    assert other.schedule.get_last_lr() == training.schedule.get_last_lr()
    assert other.scaler.get_scale() == training.scaler.get_scale()


def test_every_generator_goes_on_from_where_it_was(tmp_path: Path) -> None:
    training = Training(1)
    path = training.save(tmp_path / "a.pt", 0)
    drawn = random.random(), float(np.random.rand()), torch.rand(3).tolist(), random.gauss(0, 1), np.random.normal()
    load_checkpoint(path).restore(training.model, training.optimizer, **training.kept)
    assert drawn == (
        random.random(),
        float(np.random.rand()),
        torch.rand(3).tolist(),
        random.gauss(0, 1),
        np.random.normal(),
    )


def test_nothing_in_it_is_executed_when_it_is_read(tmp_path: Path) -> None:
    content = torch.load(Training(1).train(2).save(tmp_path / "a.pt", 2), weights_only=True)
    assert content["step"] == 2 and set(content) > {"model", "optimizer", "scaler", "others", "random"}


class Opaque:
    """Kept by something a user wants in the checkpoint."""

    def state_dict(self) -> dict[str, Any]:
        return {"rows": Path("rows")}

    def load_state_dict(self, state_dict: Any) -> None:
        raise AssertionError


def test_a_state_that_is_no_plain_data_is_refused_and_the_old_file_stays(tmp_path: Path) -> None:
    training = Training(1)
    path = training.save(tmp_path / "a.pt", 1)
    with pytest.raises(UsageError, match="an object that weights_only loading refuses, so it was not written"):
        save_checkpoint(path, training.model, training.optimizer, step=2, others={"opaque": Opaque()})
    assert load_checkpoint(path).step == 1
    assert [file.name for file in tmp_path.iterdir()] == ["a.pt"]


class Keeps:
    """Has this one thing in its state."""

    def __init__(self, thing: object) -> None:
        self.thing = thing

    def state_dict(self) -> dict[str, Any]:
        return {"thing": self.thing}

    def load_state_dict(self, state_dict: Any) -> None:
        raise AssertionError


@pytest.mark.parametrize(("thing", "named"), [(np.float64(1.0), r"it was: numpy\.\S+scalar$"), (lambda: 1, "<lambda>")])
def test_what_cannot_be_kept_is_named_and_ends_no_training(tmp_path: Path, thing: object, named: str) -> None:
    training = Training(1)
    kept = {"best": Keeps(thing)}
    with pytest.raises(UsageError, match=named) as raised:
        save_checkpoint(tmp_path / "a.pt", training.model, training.optimizer, step=2, others=kept)
    assert "float(x)" in raised.value.hint
    guard = Guard(training.model, training.optimizer, others=kept, checkpoint=tmp_path / "a.pt", splittable=False)
    with (
        pytest.warns(MemoryWarning, match="out of memory, and the checkpoint would hold an object"),
        pytest.raises(torch.OutOfMemoryError),
    ):
        guard.train_step(Failing(mean_square, 0), [make_batch(mean_square, 4)])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("place", ["folder", "folder/file/a.pt"])
def test_a_place_where_no_checkpoint_can_be_is_told_before_the_emergency(tmp_path: Path, place: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").touch()
    training = Training(1)
    with pytest.raises(EnvironmentTrouble, match=r"no checkpoint can be written to .*: (it is a folder|File exists)"):
        Guard(training.model, training.optimizer, checkpoint=tmp_path / place)


def test_what_has_no_state_is_told_before_the_emergency() -> None:
    training = Training(1)
    with pytest.raises(UsageError, match=r"others\['epoch'\] is of int, which has no state_dict\(\)"):
        Guard(training.model, training.optimizer, others={"epoch": 3})  # type: ignore[dict-item]


def test_a_disk_that_refuses_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training(1)
    path = training.save(tmp_path / "a.pt", 1)

    def full(content: object, file: Any) -> None:
        file.write(b"half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(
        EnvironmentTrouble, match=r"cannot write the checkpoint .*: No space left on device; an older one"
    ):
        training.save(path, 2)
    assert load_checkpoint(path).step == 1
    assert [file.name for file in tmp_path.iterdir()] == ["a.pt"]


@pytest.mark.parametrize("content", [b"", b"no checkpoint", b"PK\x03\x04 cut off"])
def test_a_file_that_is_none_is_told(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.pt").write_bytes(content)
    with pytest.raises(UsageError, match=r"a\.pt is no checkpoint of an autotune guard, or is not whole"):
        load_checkpoint(tmp_path / "a.pt")


def test_files_of_others_missing_files_and_halves_are_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no checkpoint"):
        load_checkpoint(tmp_path / "none.pt")
    with pytest.raises(EnvironmentTrouble, match="cannot read"):
        load_checkpoint(tmp_path)
    torch.save({"model": {}}, tmp_path / "theirs.pt")
    with pytest.raises(UsageError, match="is no checkpoint"):
        load_checkpoint(tmp_path / "theirs.pt")
    whole = Training(1).save(tmp_path / "a.pt", 1).read_bytes()
    (tmp_path / "a.pt").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UsageError, match="is no checkpoint"):
        load_checkpoint(tmp_path / "a.pt")


def test_what_is_restored_must_be_what_was_saved(tmp_path: Path) -> None:
    training = Training(1)
    checkpoint = load_checkpoint(training.save(tmp_path / "a.pt", 1))
    with pytest.raises(
        UsageError, match="holds scaler, schedule beside model and optimizer, and scaler is to be restored"
    ):
        checkpoint.restore(training.model, training.optimizer, scaler=training.scaler)


def test_what_killed_writers_left_is_removed_and_what_others_write_is_not(tmp_path: Path) -> None:
    dead, alive = tmp_path / ".a.pt.999999999.tmp", tmp_path / ".a.pt.1.tmp"
    dead.touch()
    alive.touch()
    Training(1).save(tmp_path / "a.pt", 1)
    assert (dead.exists(), alive.exists()) == (False, True)


def test_a_training_whose_sample_does_not_fit_is_saved_as_before_the_step(tmp_path: Path) -> None:
    """The step that failed has drawn random numbers and touched gradients; what goes on from the file makes it anew."""
    path = tmp_path / "emergency.pt"

    def made() -> tuple[nn.Sequential, torch.optim.Optimizer]:
        torch.manual_seed(3)
        model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 5))
        return model, torch.optim.AdamW(model.parameters(), lr=0.01)

    batches = [make_batch(mean_square, 4, number) for number in range(3)]
    model, optimizer = made()
    whole = Guard(model, optimizer)
    for batch in batches:
        whole.train_step(mean_square, [batch])
    wanted = model.state_dict()

    model, optimizer = made()
    guard = Guard(model, optimizer, checkpoint=path, splittable=True)
    for batch in batches[:2]:
        guard.train_step(mean_square, [batch])
    with pytest.raises(torch.OutOfMemoryError) as raised:
        guard.train_step(Failing(mean_square, 0, at=model[1]), [batches[2]])
    assert raised.value.__notes__[-1] == f"autotune: checkpoint {path}, of step 2"

    model, optimizer = made()
    step = load_checkpoint(path).restore(model, optimizer)
    guard = Guard(model, optimizer, start_step=step)
    guard.train_step(mean_square, [batches[2]])
    assert guard.step == 3
    assert all(torch.equal(value, wanted[name]) for name, value in model.state_dict().items())
