"""``DeepSpeedConfig`` made of the export, by itself and from within transformers."""

import json
import warnings
from types import SimpleNamespace
from typing import Any

import pytest

from autotune.export import Recommendation, Target, export
from autotune.model import Parallel, Precision, Settings
from tests.integration.conftest import Library
from tests.unit.export_samples import ALL, CHANGES, named, recommend

pytestmark = pytest.mark.integrations


@pytest.fixture
def config(library: Library, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The export as DeepSpeed understands it; it checks that batch sizes agree."""
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    made = library("deepspeed.runtime.config").DeepSpeedConfig

    def read(recommendation: Recommendation, own: dict[str, Any] | None = None) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return made(json.loads(export(recommendation, Target.DEEPSPEED, merge=own).text))

    return read


@pytest.mark.parametrize("settings", [*CHANGES, ALL], ids=named)
def test_it_is_accepted(config: Any, settings: Settings) -> None:
    made = config(recommend(settings))
    assert made.train_micro_batch_size_per_gpu == 24
    assert made.gradient_accumulation_steps == settings.accumulate
    assert made.train_batch_size == 24 * settings.accumulate
    assert made.bfloat16_config.enabled is (settings.precision is Precision.BF16)
    assert made.float16_config.enabled is (settings.precision is Precision.FP16)


def test_the_scaler_begins_as_recommended(config: Any) -> None:
    assert config(recommend(ALL)).float16_config.initial_dynamic_scale() == 1024


def test_an_own_file_keeps_what_it_says(config: Any) -> None:
    own = {
        "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
        "fp16": {"enabled": True, "loss_scale_window": 500},
        "gradient_clipping": 1.0,
        "train_batch_size": 8,
    }
    made = config(recommend(Settings(precision=Precision.BF16)), own)
    assert made.zero_config.stage == 2
    assert made.gradient_clipping == 1.0
    assert made.float16_config.enabled is False
    assert made.float16_config.loss_scale_window == 500
    assert made.bfloat16_config.enabled is True
    assert made.train_batch_size == 24


def test_autocast_of_an_own_file_is_understood(config: Any, library: Library) -> None:
    made = config(
        recommend(Settings(precision=Precision.FP16)), {"torch_autocast": {"enabled": True, "dtype": "bfloat16"}}
    )
    assert made.torch_autocast_enabled is True
    assert made.torch_autocast_dtype is library("torch").float16


@pytest.mark.parametrize("precision", [Precision.DEFAULT, Precision.BF16])
def test_transformers_fills_in_auto_and_finds_no_mismatch(
    library: Library, monkeypatch: pytest.MonkeyPatch, precision: Precision
) -> None:
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    library("deepspeed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        read = library("transformers.integrations.deepspeed").HfTrainerDeepSpeedConfig
        arguments = library("transformers").TrainingArguments
    recommendation = recommend(Settings(precision=precision, accumulate=3), device="cpu")
    own = {"train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto"}}
    merged = read(json.loads(export(recommendation, Target.DEEPSPEED, merge=own).text))
    merged.trainer_config_process(arguments(**json.loads(export(recommendation, Target.HF).text)))
    assert merged.mismatches == []
    assert merged.config == {
        "train_micro_batch_size_per_gpu": 24,
        "gradient_accumulation_steps": 3,
        "train_batch_size": 72,
        "bf16": {"enabled": precision is Precision.BF16},
        "fp16": {"enabled": False},
    }


@pytest.mark.parametrize(("parallel", "offload", "stage"), [(Parallel.ZERO, False, 1), (Parallel.FSDP, True, 3)])
def test_shards_are_a_stage(
    config: Any, library: Library, monkeypatch: pytest.MonkeyPatch, parallel: Parallel, offload: bool, stage: int
) -> None:
    group = library("deepspeed.runtime.config").dist  # batch sizes are held against its size
    monkeypatch.setattr(group, "get_rank", lambda: 0)
    monkeypatch.setattr(group, "get_world_size", lambda: 2)
    made = config(recommend(Settings(parallel=parallel, offload=offload), world=2))
    assert made.zero_config.stage == stage
    assert made.zero_enabled
    assert (made.zero_config.offload_optimizer is not None) is offload
    assert (made.zero_config.offload_param is not None) is offload


@pytest.mark.parametrize(("counted", "effective"), [(2, 144), (1, 72)])
def test_under_tensor_parallel_the_batch_is_that_of_the_ranks_with_batches_of_their_own(
    library: Library, monkeypatch: pytest.MonkeyPatch, counted: int, effective: int
) -> None:
    """Without an mpu DeepSpeed counts all ranks, and with one those that it calls data parallel; it holds batches against
    that."""
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    module = library("deepspeed.runtime.config")
    monkeypatch.setattr(module.dist, "get_rank", lambda: 0)
    monkeypatch.setattr(module.dist, "get_world_size", lambda: 2)
    mpu = SimpleNamespace(get_data_parallel_world_size=lambda: counted)
    split = recommend(Settings(parallel=Parallel.TENSOR, accumulate=3), world=2)
    made = module.DeepSpeedConfig(json.loads(export(split, Target.DEEPSPEED).text), mpu)
    assert (made.train_micro_batch_size_per_gpu, made.gradient_accumulation_steps) == (24, 3)
    assert made.train_batch_size == effective
