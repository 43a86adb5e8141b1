import copy
import json
from typing import Any

import pytest

from autotune.errors import UsageError
from autotune.export import Target, export
from autotune.model import Compile, Parallel, Precision, Settings
from tests.unit.export_samples import recommend

BATCH = {"train_micro_batch_size_per_gpu": 24, "gradient_accumulation_steps": 1, "train_batch_size": 24}
PLAIN, BF16, FP16 = Settings(), Settings(precision=Precision.BF16), Settings(precision=Precision.FP16)


def _config(settings: Settings, own: dict[str, Any] | None = None, world: int = 1) -> dict[str, Any]:
    content = json.loads(export(recommend(settings, world=world), Target.DEEPSPEED, merge=own).text)
    assert isinstance(content, dict)
    return content


def _notes(settings: Settings, own: dict[str, Any] | None = None, world: int = 1) -> dict[str, str]:
    exported = export(recommend(settings, world=world), Target.DEEPSPEED, merge=own)
    return {note.about: str(note) for note in exported.notes}


def test_the_whole_batch_is_the_product_with_accumulation_and_devices() -> None:
    assert _config(Settings(accumulate=3), world=4) == {
        "train_micro_batch_size_per_gpu": 24,
        "gradient_accumulation_steps": 3,
        "train_batch_size": 288,
    }


def test_under_tensor_parallel_the_whole_batch_is_left_to_deepspeed() -> None:
    """Ranks that split one model share a batch, and how many do only its mpu knows."""
    split = Settings(parallel=Parallel.TENSOR, accumulate=3)
    batch = {"train_micro_batch_size_per_gpu": 24, "gradient_accumulation_steps": 3}
    assert _config(split, world=2) == batch
    assert _config(split, {"train_batch_size": 8}, world=2) == batch
    assert _config(split, {"train_batch_size": "auto"}, world=2) == {**batch, "train_batch_size": "auto"}
    assert _config(split)["train_batch_size"] == 72
    told = _notes(split, {"train_batch_size": 8}, world=2)["train_batch_size"]
    assert "was 8 in the file to merge into; DeepSpeed makes the product" in told
    assert "train_batch_size" not in _notes(split, world=2)


@pytest.mark.parametrize(
    ("settings", "sections"),
    [
        (PLAIN, {}),
        (Settings(precision=Precision.TF32), {}),
        (BF16, {"bf16": {"enabled": True}}),
        (FP16, {"fp16": {"enabled": True, "initial_scale_power": 16}}),
        (
            Settings(precision=Precision.FP16, init_scale=1024.0),
            {"fp16": {"enabled": True, "initial_scale_power": 10}},
        ),
        (Settings(precision=Precision.FP16, init_scale=0.5), {"fp16": {"enabled": True, "initial_scale_power": -1}}),
    ],
)
def test_the_precision_has_a_section(settings: Settings, sections: dict[str, Any]) -> None:
    assert _config(settings) == BATCH | sections


def test_a_scale_between_powers_of_two_begins_below_and_this_is_said() -> None:
    odd = Settings(precision=Precision.FP16, init_scale=1000.0)
    assert _config(odd)["fp16"]["initial_scale_power"] == 9
    assert _notes(odd)["init_scale"].startswith("init_scale=1000.0: ")


def test_16_bit_parameters_are_not_what_was_measured_and_this_is_said() -> None:
    for settings in (BF16, FP16):
        assert "torch_autocast" in _notes(settings)["precision"]
    assert "precision" not in _notes(PLAIN)


def test_compiling_is_a_call_and_no_key() -> None:
    advice = _notes(Settings(compile=Compile.REDUCE_OVERHEAD))["compile"]
    assert 'engine.compile(compile_kwargs={"mode": "reduce-overhead", "dynamic": False})' in advice


def test_an_own_file_keeps_its_other_keys_and_their_order() -> None:
    own = {
        "zero_optimization": {"stage": 2, "reduce_bucket_size": 5e8},
        "fp16": {"loss_scale_window": 500, "initial_scale_power": 8},
        "gradient_clipping": 1.0,
    }
    before = copy.deepcopy(own)
    merged = _config(FP16, own)
    assert own == before
    assert list(merged) == [*own, *BATCH]
    assert merged == {**own, **BATCH, "fp16": {"loss_scale_window": 500, "initial_scale_power": 8, "enabled": True}}


def test_an_own_start_of_the_scaler_gives_way_to_one_that_was_found() -> None:
    own = {"fp16": {"enabled": True, "initial_scale_power": 8}}
    found = Settings(precision=Precision.FP16, init_scale=1024.0)
    assert _config(found, own)["fp16"]["initial_scale_power"] == 10
    assert (
        _notes(found, own)["fp16.initial_scale_power"] == "fp16.initial_scale_power=10: was 8 in the file to merge into"
    )


def test_what_is_replaced_is_named_and_what_agrees_is_not() -> None:
    own = {"train_micro_batch_size_per_gpu": 24, "train_batch_size": 8, "bf16": {"enabled": True}}
    assert _config(PLAIN, own) == {**BATCH, "bf16": {"enabled": False}}
    assert _notes(PLAIN, own) == {
        "train_batch_size": "train_batch_size=24: was 8 in the file to merge into",
        "bf16.enabled": "bf16.enabled=false: was true in the file to merge into",
    }


def test_auto_stays_for_transformers_to_fill_in() -> None:
    own = {
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "train_batch_size": "auto",
        "bf16": {"enabled": "auto"},
        "fp16": {"enabled": "auto"},
    }
    for settings in (PLAIN, BF16, Settings(accumulate=3)):
        assert _config(settings, own) == own
    assert set(_notes(BF16, own)) - {"precision"} == {*BATCH, "bf16.enabled", "fp16.enabled"}
    assert 'stays "auto"' in _notes(BF16, own)["bf16.enabled"]


def test_the_other_format_is_switched_off() -> None:
    own = {"fp16": {"enabled": True}, "bf16": {"enabled": False}}
    assert _config(BF16, own) == {"fp16": {"enabled": False}, "bf16": {"enabled": True}, **BATCH}


def test_the_older_name_of_a_section_is_kept() -> None:
    assert _config(BF16, {"bfloat16": {"enabled": False}}) == {"bfloat16": {"enabled": True}, **BATCH}
    both = {"bfloat16": {"enabled": True}, "bf16": {"enabled": False}}  # DeepSpeed reads the newer one
    assert _config(BF16, both)["bf16"] == {"enabled": True}


@pytest.mark.parametrize(
    ("settings", "autocast"),
    [
        (PLAIN, {"enabled": False, "dtype": "bf16"}),
        (BF16, {"enabled": True, "dtype": "bf16"}),
        (FP16, {"enabled": True, "dtype": "float16"}),
    ],
)
def test_autocast_of_an_own_file_is_told_the_format(settings: Settings, autocast: dict[str, Any]) -> None:
    assert _config(settings, {"torch_autocast": {"enabled": True, "dtype": "bf16"}}) == {
        "torch_autocast": autocast,
        **BATCH,
    }


def test_autocast_that_is_off_does_not_count() -> None:
    assert _config(BF16, {"torch_autocast": {"enabled": False}})["bf16"] == {"enabled": True}


@pytest.mark.parametrize("own", [{"bf16": True}, {"fp16": None}, {"torch_autocast": []}])
def test_a_value_in_place_of_a_section_is_an_error(own: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="not a section"):
        _config(BF16, own)
