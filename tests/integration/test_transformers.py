"""``TrainingArguments`` made of the export."""

import dataclasses
import json
import warnings
from pathlib import Path
from typing import Any

import pytest

from autotune.export import Recommendation, Target, export
from autotune.model import Checkpointing, Compile, OptimizerKind, Parallel, Precision, Settings
from tests.integration.conftest import Library
from tests.unit.export_samples import ALL, recommend

pytestmark = pytest.mark.integrations


@pytest.fixture
def arguments(library: Library, tmp_path: Path) -> Any:
    """The export as transformers reads it from a file; on this machine's CPU, wherever it was measured."""
    transformers = library("transformers")
    library("accelerate")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its modules are imported as they are asked for
        parser = transformers.HfArgumentParser(transformers.TrainingArguments)

    def read(recommendation: Recommendation) -> Any:
        path = tmp_path / "arguments.json"
        path.write_text(export(recommendation, Target.HF).text)
        (made,) = parser.parse_json_file(str(path))
        return made

    return read


@pytest.mark.parametrize(
    ("precision", "mixed"), [(Precision.DEFAULT, "no"), (Precision.FP32, "no"), (Precision.BF16, "bf16")]
)
def test_the_batch_and_the_precision_arrive(arguments: Any, precision: Precision, mixed: str) -> None:
    made = arguments(recommend(Settings(precision=precision, accumulate=4), device="cpu"))
    assert made.per_device_train_batch_size == 24
    assert made.gradient_accumulation_steps == 4
    assert made.mixed_precision == mixed
    assert made.auto_find_batch_size is False
    assert made.torch_compile is False
    assert made.device.type == "cpu"


@pytest.mark.parametrize("mode", [mode for mode in Compile if mode is not Compile.OFF])
def test_compiling_arrives(arguments: Any, mode: Compile) -> None:
    made = arguments(recommend(Settings(compile=mode), device="cpu"))
    assert (made.torch_compile, made.torch_compile_mode) == (True, mode.value)


def test_data_loader_options_arrive(arguments: Any) -> None:
    made = arguments(recommend(Settings(loader_workers=2), device="cpu"))
    assert made.dataloader_num_workers == 2


def test_checkpointing_arrives_under_the_name_that_release_4_has_too(arguments: Any) -> None:
    recommendation = recommend(Settings(checkpointing=Checkpointing.OWN), device="cpu")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        made = arguments(recommendation)
    assert made.gradient_checkpointing is True
    assert made.gradient_checkpointing_kwargs == {"use_reentrant": False}
    assert all("gradient_checkpointing" in str(warning.message) for warning in seen)


@pytest.mark.parametrize("kind", [OptimizerKind.FOREACH, OptimizerKind.FUSED])
def test_optimizers_have_these_names(library: Library, kind: OptimizerKind) -> None:
    names = {name.value for name in library("transformers.training_args").OptimizerNames}
    (note,) = export(recommend(Settings(optimizer=kind)), Target.HF).notes
    assert any(f'"optim": "{name}" where' in note.advice for name in names)


def test_every_field_of_the_fullest_export_is_one_of_theirs(library: Library) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        known = {field.name for field in dataclasses.fields(library("transformers").TrainingArguments)}
    exported = json.loads(export(recommend(ALL, world=2), Target.HF).text)
    assert set(exported) - known == set()
    assert "fsdp_config" in exported


def test_options_of_ddp_arrive(arguments: Any) -> None:
    settings = Settings(parallel=Parallel.DDP, bucket_mb=50, static_graph=True)
    made = arguments(recommend(settings, world=2, device="cpu"))
    assert (made.ddp_bucket_cap_mb, made.ddp_static_graph, made.fsdp) == (50, True, None)


@pytest.mark.parametrize(("reshard", "offload"), [(True, False), (False, True)])
def test_shards_arrive_as_the_second_version_of_fsdp(arguments: Any, reshard: bool, offload: bool) -> None:
    settings = Settings(parallel=Parallel.FSDP, reshard=reshard, offload=offload)
    made = arguments(recommend(settings, world=2, device="cpu"))
    assert made.fsdp_plugin_args["fsdp_version"] == 2
    assert made.fsdp_plugin_args["reshard_after_forward"] is reshard
    assert made.fsdp_plugin_args.get("cpu_offload", False) is offload
    assert made.fsdp_plugin_args["auto_wrap_policy"] == "TRANSFORMER_BASED_WRAP"
