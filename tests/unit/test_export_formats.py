"""What each target is given, word for word."""

import json
from dataclasses import replace
from typing import Any

import pytest

from autotune.export import Note, Target, export
from autotune.model import Checkpointing, Compile, OptimizerKind, Parallel, Precision, Settings
from tests.unit.export_samples import ALL, recommend

PLAIN = recommend(Settings())
BF16 = recommend(Settings(precision=Precision.BF16, compile=Compile.DEFAULT, accumulate=4))
EVERYTHING = recommend(ALL, world=2)


def _notes(found: tuple[Note, ...]) -> dict[str, str]:
    return {note.about: note.advice for note in found}


def _fields(target: Target, settings: Settings, **options: Any) -> Any:
    return json.loads(export(recommend(settings, **options), target).text)


def test_hf_is_told_the_batch_and_that_nothing_else_is_wanted() -> None:
    assert json.loads(export(PLAIN, Target.HF).text) == {
        "per_device_train_batch_size": 24,
        "gradient_accumulation_steps": 1,
        "auto_find_batch_size": False,
        "bf16": False,
        "fp16": False,
        "torch_compile": False,
    }


def test_hf_is_told_everything_it_has_a_field_for() -> None:
    exported = export(EVERYTHING, Target.HF)
    assert json.loads(exported.text) == {
        "per_device_train_batch_size": 24,
        "gradient_accumulation_steps": 3,
        "auto_find_batch_size": False,
        "bf16": False,
        "fp16": True,
        "torch_compile": True,
        "torch_compile_mode": "max-autotune",
        "gradient_checkpointing": True,
        "gradient_checkpointing_kwargs": {"use_reentrant": False},
        "dataloader_num_workers": 4,
        "dataloader_pin_memory": True,
        "fsdp": True,
        "fsdp_config": {
            "fsdp_version": 2,
            "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "reshard_after_forward": False,
            "cpu_offload": True,
        },
    }
    assert {"init_scale", "optimizer", "memory_format", "attention", "allocator"} <= _notes(exported.notes).keys()


@pytest.mark.parametrize(
    ("precision", "device", "tf32"),
    [
        (Precision.DEFAULT, "cuda", None),
        (Precision.FP32, "cuda", False),
        (Precision.TF32, "cuda", True),
        (Precision.BF16, "cuda", True),
        (Precision.FP16, "cuda", None),
        (Precision.FP32, "cpu", None),
        (Precision.BF16, "cpu", None),
    ],
)
def test_hf_is_told_about_tf32_where_it_would_not_refuse_it(
    precision: Precision, device: str, tf32: bool | None
) -> None:
    assert _fields(Target.HF, Settings(precision=precision), device=device).get("tf32") is tf32


def test_hf_allows_tf32_by_itself_when_it_compiles_and_this_is_said() -> None:
    assert '"tf32": false' in _notes(export(recommend(Settings(compile=Compile.DEFAULT)), Target.HF).notes)["compile"]
    assert "compile" not in _notes(export(BF16, Target.HF).notes)


@pytest.mark.parametrize(
    ("kind", "optim"),
    [
        (OptimizerKind.FUSED, "adamw_torch_fused"),
        (OptimizerKind.FOREACH, "adamw_torch"),
        (OptimizerKind.FOR_LOOP, None),
        (OptimizerKind.DEFAULT, None),
    ],
)
def test_hf_has_names_for_implementations_of_adamw_alone(kind: OptimizerKind, optim: str | None) -> None:
    """The file does not say which optimizer it is."""
    exported = export(recommend(Settings(optimizer=kind)), Target.HF)
    advice = _notes(exported.notes).get("optimizer", "")
    assert "optim" not in json.loads(exported.text)
    assert (f'"optim": "{optim}" where the optimizer is AdamW' in advice) is (optim is not None)
    assert bool(advice) is (kind is not OptimizerKind.DEFAULT)


@pytest.mark.parametrize(
    ("target", "instead"), [(Target.HF, "fp32"), (Target.ACCELERATE, "fp32"), (Target.LIGHTNING, "bf16")]
)
def test_fp16_on_the_cpu_is_not_what_frameworks_calculate_in_and_this_is_said(target: Target, instead: str) -> None:
    """Seen in accelerate 1.15, transformers 5.24 and Lightning 2.6."""
    half = Settings(precision=Precision.FP16)
    assert (
        f"on the CPU {instead} is calculated"
        in _notes(export(recommend(half, device="cpu"), target).notes)["precision"]
    )
    assert "on the CPU" not in _notes(export(recommend(half), target).notes)["precision"]
    bf16 = _notes(export(recommend(Settings(precision=Precision.BF16), device="cpu"), target).notes)
    assert "on the CPU" not in bf16.get("precision", "")


def test_accelerate_starts_one_process_on_a_cpu_and_this_is_said() -> None:
    ddp = Settings(parallel=Parallel.DDP)
    told = _notes(export(recommend(ddp, world=2, device="cpu"), Target.ACCELERATE).notes)
    assert told["num_processes"].endswith("torchrun --nproc-per-node=2")
    for plain in (recommend(ddp, world=2), recommend(ddp, device="cpu")):
        assert "num_processes" not in _notes(export(plain, Target.ACCELERATE).notes)


def test_hf_is_told_to_stay_on_the_cpu() -> None:
    assert _fields(Target.HF, Settings(), device="cpu")["use_cpu"] is True


def test_lightning_is_told_trainer_and_data_arguments() -> None:
    assert json.loads(export(PLAIN, Target.LIGHTNING).text) == {
        "trainer": {"precision": "32-true", "accumulate_grad_batches": 1, "devices": 1},
        "data": {"batch_size": 24},
    }
    assert json.loads(export(EVERYTHING, Target.LIGHTNING).text) == {
        "trainer": {"precision": "16-mixed", "accumulate_grad_batches": 3, "devices": 2, "benchmark": True},
        "data": {"batch_size": 24, "num_workers": 4, "pin_memory": True},
    }
    assert _fields(Target.LIGHTNING, Settings(precision=Precision.BF16), device="cpu")["trainer"] == {
        "precision": "bf16-mixed",
        "accumulate_grad_batches": 1,
        "devices": 1,
        "accelerator": "cpu",
    }


def test_lightning_has_no_switch_for_checkpointing_and_gets_the_line_to_write() -> None:
    advice = _notes(export(recommend(Settings(checkpointing=Checkpointing.BLOCKS)), Target.LIGHTNING).notes)
    assert advice["checkpointing"].startswith("no switch in Trainer; in configure_model() of the LightningModule: ")
    assert "torch.utils.checkpoint.checkpoint(block, inputs, use_reentrant=False)" in advice["checkpointing"]


@pytest.mark.parametrize(("precision", "warned"), [(Precision.FP16, True), (Precision.BF16, False)])
def test_lightning_refuses_clipping_with_a_fused_optimizer_under_fp16(precision: Precision, warned: bool) -> None:
    exported = export(recommend(Settings(precision=precision, optimizer=OptimizerKind.FUSED)), Target.LIGHTNING)
    assert ("gradient_clip_val" in _notes(exported.notes)["optimizer"]) is warned


def test_accelerate_is_told_in_the_keys_of_its_own_questionnaire() -> None:
    assert export(recommend(BF16.settings, world=2), Target.ACCELERATE).text == (
        'compute_environment: "LOCAL_MACHINE"\n'
        "debug: false\n"
        'distributed_type: "MULTI_GPU"\n'
        "dynamo_config:\n"
        '  dynamo_backend: "INDUCTOR"\n'
        '  dynamo_mode: "default"\n'
        "  dynamo_use_dynamic: false\n"
        "  dynamo_use_fullgraph: false\n"
        "  dynamo_use_regional_compilation: false\n"
        "enable_cpu_affinity: false\n"
        "machine_rank: 0\n"
        'main_training_function: "main"\n'
        'mixed_precision: "bf16"\n'
        "num_machines: 1\n"
        "num_processes: 2\n"
        'rdzv_backend: "static"\n'
        "same_network: true\n"
        "use_cpu: false"
    )


@pytest.mark.parametrize(
    ("world", "device", "kind"), [(1, "cuda", "NO"), (2, "cuda", "MULTI_GPU"), (2, "cpu", "MULTI_CPU")]
)
def test_accelerate_is_told_how_many_train_together(world: int, device: str, kind: str) -> None:
    lines = export(recommend(Settings(), world=world, device=device), Target.ACCELERATE).text.splitlines()
    assert f'distributed_type: "{kind}"' in lines
    assert f"num_processes: {world}" in lines
    assert f"use_cpu: {str(device == 'cpu').lower()}" in lines
    assert "dynamo_config:" not in lines


def test_accelerate_has_no_key_for_the_batch_and_this_is_said() -> None:
    advice = _notes(export(BF16, Target.ACCELERATE).notes)
    assert "DataLoader(..., batch_size=24)" in advice["micro_batch"]
    assert "Accelerator(gradient_accumulation_steps=4)" in advice["accumulate"]


def test_hydra_gets_an_override_for_every_value() -> None:
    lines = export(EVERYTHING, Target.HYDRA).text.splitlines()
    assert lines == [
        "++autotune.micro_batch=24",
        "++autotune.world=2",
        "++autotune.precision=fp16",
        "++autotune.init_scale=1024.0",
        "++autotune.checkpointing=own",
        "++autotune.compile=max-autotune",
        "++autotune.activation_budget=0.5",
        "++autotune.optimizer=fused",
        "++autotune.memory_format=channels_last",
        "++autotune.attention=flash",
        "++autotune.cudnn_benchmark=true",
        "++autotune.set_to_none=false",
        "++autotune.loader_workers=4",
        "++autotune.pin_memory=true",
        "++autotune.allocator='expandable_segments:True,max_split_size_mb:128'",
        "++autotune.parallel=fsdp",
        "++autotune.bucket_mb=50",
        "++autotune.bucket_view=true",
        "++autotune.static_graph=true",
        "++autotune.reshard=false",
        "++autotune.offload=true",
        "++autotune.accumulate=3",
    ]


def test_hydra_gets_the_same_values_in_a_file() -> None:
    lines = export(PLAIN, Target.HYDRA).file_text.splitlines()
    assert lines[:3] == ["micro_batch: 24", "world: 1", 'precision: "default"']
    assert "loader_workers: null" in lines
    assert 'compile: "off"' in lines  # bare, YAML 1.1 would take it for false
    assert len(lines) == len(export(PLAIN, Target.HYDRA).text.splitlines())


def test_hydra_applies_nothing_and_this_is_said_once() -> None:
    (applied, allocator) = export(EVERYTHING, Target.HYDRA).notes
    assert applied.about == "settings"
    assert applied.value.startswith("precision,init_scale,checkpointing,compile,")
    assert allocator.about == "allocator"


def test_a_shell_gets_what_pytorch_reads_and_the_batch() -> None:
    assert export(EVERYTHING, Target.ENV).text.splitlines() == [
        "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True,max_split_size_mb:128",
        "export PYTORCH_ALLOC_CONF=expandable_segments:True,max_split_size_mb:128",
        "export AUTOTUNE_BATCH_SIZE=24",
        "export AUTOTUNE_ACCUMULATE=3",
    ]


def test_the_allocator_setting_reaches_everyone_else_as_variables_to_set() -> None:
    for target in Target:
        advice = _notes(export(EVERYTHING, target).notes).get("allocator", "")
        assert ("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True" in advice) is (target is not Target.ENV)


def test_c11_hf_is_told_the_batch_of_evaluation_where_it_is_known() -> None:
    known = replace(PLAIN, eval_batch=15)
    assert json.loads(export(known, Target.HF).text)["per_device_eval_batch_size"] == 15
    assert "per_device_eval_batch_size" not in json.loads(export(PLAIN, Target.HF).text)


def test_lightning_has_no_option_for_the_batch_of_evaluation_so_that_a_smaller_one_is_noted() -> None:
    notes = _notes(export(replace(PLAIN, eval_batch=15), Target.LIGHTNING).notes)
    assert notes["eval_batch"] == "batch_size of the DataLoader that val_dataloader() returns"
    assert "eval_batch" not in _notes(export(replace(PLAIN, eval_batch=24), Target.LIGHTNING).notes)


DDP = recommend(Settings(parallel=Parallel.DDP, bucket_mb=50, bucket_view=True, static_graph=True), world=2)
OPTIONS = "bucket_cap_mb=50, gradient_as_bucket_view=True, static_graph=True"


def test_ddp_reaches_each_framework_by_its_own_words() -> None:
    hf, lightning, accelerate = (export(DDP, target) for target in (Target.HF, Target.LIGHTNING, Target.ACCELERATE))
    assert {k: v for k, v in json.loads(hf.text).items() if k.startswith(("ddp", "fsdp"))} == {
        "ddp_bucket_cap_mb": 50,
        "ddp_static_graph": True,
    }
    assert f"ddp_handler = DistributedDataParallelKwargs({OPTIONS})" in _notes(hf.notes)["bucket_view"]
    assert json.loads(lightning.text)["trainer"]["strategy"] == "ddp"
    assert f"DDPStrategy({OPTIONS})" in _notes(lightning.notes)["static_graph"]
    assert 'distributed_type: "MULTI_GPU"' in accelerate.text
    assert f"DistributedDataParallelKwargs({OPTIONS})" in _notes(accelerate.notes)["bucket_mb"]
    assert "parallel" not in {note.about for found in (hf, lightning, accelerate) for note in found.notes}


def test_fsdp_reaches_those_that_have_it() -> None:
    sharded = recommend(Settings(parallel=Parallel.FSDP, reshard=False, offload=True), world=4)
    accelerate = export(sharded, Target.ACCELERATE).text.splitlines()
    assert 'distributed_type: "FSDP"' in accelerate
    assert [line for line in accelerate if "fsdp_" in line] == [
        "fsdp_config:",
        '  fsdp_auto_wrap_policy: "TRANSFORMER_BASED_WRAP"',
        "  fsdp_offload_params: true",
        "  fsdp_reshard_after_forward: false",
        '  fsdp_state_dict_type: "SHARDED_STATE_DICT"',
        "  fsdp_version: 2",
    ]
    assert json.loads(export(sharded, Target.DEEPSPEED).text)["zero_optimization"] == {
        "stage": 3,
        "offload_param": {"device": "cpu"},
        "offload_optimizer": {"device": "cpu"},
    }
    lightning = _notes(export(sharded, Target.LIGHTNING).notes)
    assert "ModelParallelStrategy(data_parallel_size=4, tensor_parallel_size=1)" in lightning["parallel"]
    assert "reshard_after_forward=False" in lightning["reshard"]


def test_a_sharded_optimizer_is_the_first_stage_of_deepspeed_and_a_note_elsewhere() -> None:
    zero = recommend(Settings(parallel=Parallel.ZERO), world=2)
    assert json.loads(export(zero, Target.DEEPSPEED).text)["zero_optimization"] == {"stage": 1}
    for target in (Target.HF, Target.LIGHTNING, Target.ACCELERATE, Target.ENV):
        assert "ZeroRedundancyOptimizer" in _notes(export(zero, target).notes)["parallel"]


def test_ddp_leaves_the_stage_of_an_own_file_alone() -> None:
    own = {"zero_optimization": {"stage": 2}}
    assert json.loads(export(DDP, Target.DEEPSPEED, merge=own).text)["zero_optimization"] == {"stage": 2}


@pytest.mark.parametrize("parallel", [kind for kind in Parallel if kind is not Parallel.DEFAULT])
@pytest.mark.parametrize("target", [Target.HF, Target.LIGHTNING, Target.ACCELERATE, Target.DEEPSPEED])
def test_one_device_is_told_that_sharing_does_nothing(target: Target, parallel: Parallel) -> None:
    exported = export(recommend(Settings(parallel=parallel)), target)
    assert _notes(exported.notes)["parallel"] == "without effect on one device"
    assert exported.text == export(PLAIN, target).text


def test_accumulation_under_ddp_says_when_gradients_are_exchanged() -> None:
    advice = _notes(export(recommend(Settings(parallel=Parallel.DDP, accumulate=3), world=2), Target.ENV).notes)
    assert advice == {"parallel": "torch.nn.parallel.DistributedDataParallel(model) on each rank"}
