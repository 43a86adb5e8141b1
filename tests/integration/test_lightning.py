"""``lightning.Trainer`` made of the export."""

import json
import warnings
from dataclasses import replace
from typing import Any

import pytest

from autotune.export import Target, export
from autotune.model import Parallel, Precision, Settings
from tests.integration.conftest import Library
from tests.unit.export_samples import ALL, recommend

pytestmark = pytest.mark.integrations
QUIET = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}


def _made(library: Library, exported: str, **own: Any) -> Any:
    trainer = json.loads(exported)["trainer"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about this machine: fp16 on the CPU, a GPU not used
        return library("lightning").Trainer(**{**trainer, **own}, **QUIET)


@pytest.mark.parametrize(
    ("precision", "name"),
    [
        (Precision.DEFAULT, "32-true"),
        (Precision.TF32, "32-true"),
        (Precision.BF16, "bf16-mixed"),
    ],
)
def test_trainer_takes_precision_accumulation_and_device(library: Library, precision: Precision, name: str) -> None:
    trainer = _made(
        library, export(recommend(Settings(precision=precision, accumulate=4), device="cpu"), Target.LIGHTNING).text
    )
    assert trainer.precision == name
    assert trainer.accumulate_grad_batches == 4
    assert trainer.num_devices == 1
    assert type(trainer.accelerator).__name__ == "CPUAccelerator"


def test_trainer_takes_the_fullest_export(library: Library) -> None:
    torch = library("torch")
    before = torch.backends.cudnn.benchmark
    try:
        trainer = _made(library, export(recommend(ALL), Target.LIGHTNING).text, accelerator="cpu", precision="32-true")
        assert torch.backends.cudnn.benchmark is True
    finally:
        torch.backends.cudnn.benchmark = before
    assert trainer.accumulate_grad_batches == 3


def test_fp16_is_one_of_its_precisions_and_its_plugin_takes_a_scaler(library: Library) -> None:
    torch = library("torch")
    exported = export(recommend(ALL, device="cpu"), Target.LIGHTNING)
    plugin = library("lightning.pytorch.plugins.precision").MixedPrecision
    name = json.loads(exported.text)["trainer"]["precision"]
    (advice,) = [note.advice for note in exported.notes if note.about == "init_scale"]
    expression = advice.partition("Trainer(plugins=")[2].partition(") in place")[0]
    made = eval(expression, {"MixedPrecision": plugin, "torch": torch})
    assert (made.precision, made.scaler.get_scale()) == (name, 1024.0)


def test_the_data_arguments_are_those_of_a_data_loader(library: Library) -> None:
    torch = library("torch")
    settings = replace(ALL, loader_workers=1)  # more than there are cores would be warned about
    data = json.loads(export(recommend(settings), Target.LIGHTNING).text)["data"]
    loader = torch.utils.data.DataLoader(range(48), **data)
    assert (loader.batch_size, loader.num_workers, loader.pin_memory) == (24, 1, True)


def test_ddp_is_a_strategy_by_name_and_its_options_are_arguments(library: Library) -> None:
    settings = Settings(parallel=Parallel.DDP, bucket_mb=50, bucket_view=True, static_graph=True)
    exported = export(recommend(settings, world=2, device="cpu"), Target.LIGHTNING)
    trainer = _made(library, exported.text)
    assert type(trainer.strategy).__name__ == "DDPStrategy"
    assert trainer.num_devices == 2
    strategy = library("lightning.pytorch.strategies").DDPStrategy
    (advice,) = [note.advice for note in exported.notes if note.about == "bucket_view"]
    made = eval(advice.partition("strategy=")[2].partition(") in place")[0], {"DDPStrategy": strategy})
    assert made._ddp_kwargs == {"bucket_cap_mb": 50, "gradient_as_bucket_view": True, "static_graph": True}


def test_fsdp_is_an_object_that_lightning_has(library: Library) -> None:
    exported = export(recommend(Settings(parallel=Parallel.FSDP), world=2, device="cpu"), Target.LIGHTNING)
    strategy = library("lightning.pytorch.strategies").ModelParallelStrategy
    (advice,) = [note.advice for note in exported.notes if note.about == "parallel"]
    made = eval(advice.partition("strategy=")[2].partition(")), and")[0] + ")", {"ModelParallelStrategy": strategy})
    assert made._data_parallel_size == 2
