"""GuardCallback in a real Trainer of transformers and in one of Lightning: watched, saved at the limit, gone on or stopped."""

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from autotune.errors import EnvironmentTrouble, MemoryWarning, UsageError
from autotune.published import FOLDER_VARIABLE
from autotune.runtime import load_checkpoint
from autotune.units import GIB
from autotune.workload.source import INSIDE_VARIABLE
from tests.integration.conftest import Library
from tests.unit.planted_trainings import PlantedMeter

pytestmark = pytest.mark.integrations

LIMITED = {"limit": "70GiB", "every": 1, "least_seconds": 0.0}


class Rising(PlantedMeter):
    """Above 70 GiB from the third look on."""

    def read(self) -> Any:
        self.used = 71 * GIB if self.asked >= 2 else 10 * GIB
        return super().read()


class Reading(PlantedMeter):
    """Reads at each look what trainings publish, which it does before this step is told."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.steps: list[list[int]] = []

    def read(self) -> Any:
        self.steps.append([json.loads(path.read_text())["step"] for path in self.folder.glob("*.json")])
        return super().read()


@pytest.fixture
def published_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where trainings of the test publish."""
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "published"))
    monkeypatch.setattr("autotune.runtime.publish.EVERY_S", 0.0)
    return tmp_path / "published"


def events(path: Path) -> list[tuple[str, int]]:
    return [(line["event"], line["step"]) for line in map(json.loads, path.read_text().splitlines())]


def told(caught: list[warnings.WarningMessage]) -> list[str]:
    return [str(w.message).splitlines()[0] for w in caught if w.category is MemoryWarning]


# --- transformers -----------------------------------------------------------------------------------------------------


def hf_trainer(library: Library, folder: Path, callback: Any) -> Any:
    """A Trainer of a regression, six steps long."""
    transformers = library("transformers")

    class Regression(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 1)

        def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"loss": (self.linear(x) - labels).square().mean()}

    torch.manual_seed(0)
    data = [{"x": row, "labels": row[:1]} for row in torch.randn(24, 4)]
    arguments = transformers.TrainingArguments(
        str(folder),
        use_cpu=True,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        max_steps=6,
        per_device_train_batch_size=4,
        remove_unused_columns=False,
    )
    return transformers.Trainer(Regression(), arguments, train_dataset=data, callbacks=[callback])


def trained(trainer: Any, **options: Any) -> list[str]:
    """Trains; returns what was told of memory."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer.train(**options)
    return told(caught)


def hf_callback(library: Library, **options: Any) -> Any:
    library("transformers")
    from autotune.integrations.huggingface_guard import GuardCallback

    return GuardCallback(**{**LIMITED, "meter": Rising(), **options})


def test_at_the_limit_the_trainer_saves_and_goes_on(library: Library, tmp_path: Path) -> None:
    log, own = tmp_path / "log.jsonl", tmp_path / "own.pt"
    trainer = hf_trainer(library, tmp_path / "out", hf_callback(library, log=log, checkpoint=own))
    (text,) = trained(trainer)
    assert text == f"step 3: 71 GiB of 80 GiB in use, above the limit of 70 GiB; checkpoint {own}"
    assert trainer.state.global_step == 6
    assert [each.name for each in (tmp_path / "out").glob("checkpoint-*")] == ["checkpoint-3"]
    assert events(log) == [("memory", step) for step in (1, 2, 3)] + [("checkpoint", 3)] + [
        ("memory", step) for step in (4, 5, 6)
    ] + [("summary", 6)]
    checkpoint = load_checkpoint(own)
    assert checkpoint.step == 3 and set(checkpoint.others) == {"lr_scheduler"}
    assert checkpoint.model.keys() == {"linear.weight", "linear.bias"}


def test_where_it_is_to_stop_the_trainer_stops_and_its_checkpoint_is_gone_on_from(
    library: Library, tmp_path: Path
) -> None:
    trainer = hf_trainer(library, tmp_path / "out", hf_callback(library, on_limit="stop"))
    (text,) = trained(trainer)
    assert text.endswith(f"checkpoint {tmp_path / 'out' / 'checkpoint-3'}")
    assert trainer.state.global_step == 3
    resumed = hf_trainer(library, tmp_path / "out", hf_callback(library, meter=PlantedMeter()))
    assert trained(resumed, resume_from_checkpoint=True) == []
    whole = hf_trainer(library, tmp_path / "other", hf_callback(library, meter=PlantedMeter()))
    trained(whole)
    assert resumed.state.global_step == whole.state.global_step == 6
    pairs = zip(resumed.model.parameters(), whole.model.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


def test_a_trainer_with_the_callback_is_seen_while_it_trains(
    library: Library, tmp_path: Path, published_in: Path
) -> None:
    meter = Reading(published_in)
    trained(hf_trainer(library, tmp_path / "out", hf_callback(library, meter=meter)))
    assert meter.steps == [[], [1], [2], [3], [4], [5]]
    assert list(published_in.iterdir()) == []


def test_within_a_search_the_callback_does_nothing(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(INSIDE_VARIABLE, "1")
    trainer = hf_trainer(library, tmp_path / "out", hf_callback(library, log=tmp_path / "log.jsonl"))
    assert trained(trainer) == []
    assert not (tmp_path / "log.jsonl").exists()


def test_one_of_several_processes_does_not_stop_alone(library: Library, tmp_path: Path) -> None:
    callback = hf_callback(library, on_limit="stop")
    arguments = type("Arguments", (), {"world_size": 2, "device": "cpu"})
    with pytest.raises(UsageError, match="2 processes train together"):
        callback.on_train_begin(arguments, None, None)


def test_a_place_where_no_checkpoint_can_be_is_told_before_the_trainer_s_first_step(
    library: Library, tmp_path: Path
) -> None:
    trainer = hf_trainer(library, tmp_path / "out", hf_callback(library, checkpoint=tmp_path))
    with pytest.raises(EnvironmentTrouble, match=r"no checkpoint can be written to .*: it is a folder"):
        trainer.train()
    assert trainer.state.global_step == 0


# --- Lightning --------------------------------------------------------------------------------------------------------


def fit(library: Library, *callbacks: Any, **options: Any) -> tuple[Any, Any, list[str]]:
    """(trainer, module, what was told of memory) after six steps of two batches each."""
    lightning = library("lightning")

    class Module(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.linear = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))

        def training_step(self, batch: torch.Tensor, batch_idx: int) -> Any:
            return (self.linear(batch) - batch[:, :1]).square().mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), lr=0.01)

        def train_dataloader(self) -> Any:
            draw = torch.Generator().manual_seed(1)
            return torch.utils.data.DataLoader(list(torch.randn(48, 4, generator=draw)), batch_size=4)  # type: ignore[arg-type]

    module = Module()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer = lightning.Trainer(
            accelerator="cpu",
            devices=1,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            accumulate_grad_batches=2,
            max_steps=6,
            callbacks=list(callbacks),
        )
        trainer.fit(module, **options)
    return trainer, module, told(caught)


def lightning_callback(library: Library, *args: Any, **options: Any) -> Any:
    library("lightning")
    from autotune.integrations.lightning_guard import GuardCallback

    return GuardCallback(*args, **{**LIMITED, "meter": Rising(), **options})


def test_at_the_limit_lightning_saves_whole_and_goes_on(library: Library, tmp_path: Path) -> None:
    path, log = tmp_path / "deep" / "emergency.ckpt", tmp_path / "log.jsonl"
    trainer, _, texts = fit(library, lightning_callback(library, path, log=log))
    assert texts == [f"step 3: 71 GiB of 80 GiB in use, above the limit of 70 GiB; checkpoint {path}"]
    assert trainer.global_step == 6
    assert [each.name for each in path.parent.iterdir()] == ["emergency.ckpt"]
    assert [event for event in events(log) if event[0] != "memory"] == [("checkpoint", 3), ("summary", 6)]
    assert [step for event, step in events(log) if event == "memory"] == [1, 2, 3, 4, 5, 6]


def test_a_place_where_no_checkpoint_can_be_is_told_before_lightning_s_first_step(
    library: Library, tmp_path: Path
) -> None:
    with pytest.raises(EnvironmentTrouble, match=r"no checkpoint can be written to .*: it is a folder"):
        fit(library, lightning_callback(library, tmp_path))


def test_where_it_is_to_stop_lightning_stops_and_its_checkpoint_is_gone_on_from(
    library: Library, tmp_path: Path
) -> None:
    path = tmp_path / "emergency.ckpt"
    trainer, _, texts = fit(library, lightning_callback(library, path, on_limit="stop"))
    assert (trainer.global_step, len(texts)) == (3, 1)
    quiet = lightning_callback(library, meter=PlantedMeter())
    resumed, _, texts = fit(library, quiet, ckpt_path=path)
    assert (resumed.global_step, texts) == (6, [])


def test_a_lightning_training_with_the_callback_is_seen_while_it_trains(library: Library, published_in: Path) -> None:
    meter = Reading(published_in)
    fit(library, lightning_callback(library, meter=meter))
    assert meter.steps == [[], [1], [2], [3], [4], [5]]
    assert list(published_in.iterdir()) == []


def test_an_exception_in_lightning_ends_the_log_with_its_summary(library: Library, tmp_path: Path) -> None:
    lightning, log = library("lightning"), tmp_path / "log.jsonl"
    callback = lightning_callback(library, log=log, meter=PlantedMeter())

    class Raising(lightning.Callback):  # type: ignore[misc, name-defined]
        def on_train_batch_end(self, trainer: Any, *args: Any) -> None:
            if trainer.global_step == 2:
                raise ValueError("the user's own")

    with pytest.raises(ValueError, match="the user's own"):
        fit(library, callback, Raising())
    assert events(log)[-1] == ("summary", 2)
