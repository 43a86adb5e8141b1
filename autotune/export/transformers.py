"""Fields of transformers' ``TrainingArguments``.

``TrainingArguments(**json.load(file))``, or ``HfArgumentParser(TrainingArguments).parse_json_file(file)``. Names are those
that releases 4 and 5 share. Read in 5.24: with ``torch_compile``, tf32 is switched on where ``tf32`` is not given and the
precision is not fp16; ``tf32=True`` is refused off CUDA, ``bf16`` off the GPU unless ``use_cpu`` is given.
"""

from typing import Any

from autotune.export.by_hand import beside_autocast, by_hand, ddp_options, has_ddp
from autotune.export.nouns import Draft, Note, Recommendation
from autotune.export.text import json_text
from autotune.model import Checkpointing, Compile, OptimizerKind, Parallel, Precision, Settings

_ADAMW = {OptimizerKind.FOREACH: "adamw_torch", OptimizerKind.FUSED: "adamw_torch_fused"}
"""``adamw_torch`` leaves the choice to PyTorch, which takes foreach on CUDA."""


_TF32 = {Precision.FP32: False, Precision.TF32: True, Precision.BF16: True}
"""As measured: beside autocast, too, what stays in fp32 may use tf32. Not with fp16, whose devices may have no tf32."""


def training_arguments(recommendation: Recommendation) -> Draft:
    """JSON of the fields that make ``Trainer`` train as recommended."""
    it = recommendation.settings
    fields: dict[str, Any] = {
        "per_device_train_batch_size": recommendation.micro_batch,
        "gradient_accumulation_steps": it.accumulate,
        "auto_find_batch_size": False,
        "bf16": it.precision is Precision.BF16,
        "fp16": it.precision is Precision.FP16,
        "torch_compile": it.compile is not Compile.OFF,
    }
    if recommendation.eval_batch is not None:
        fields["per_device_eval_batch_size"] = recommendation.eval_batch
    sets = {"precision", "compile", "accumulate", "loader_workers", "pin_memory"}
    if recommendation.device == "cpu":
        fields["use_cpu"] = True
    if it.precision in _TF32 and recommendation.device == "cuda":
        fields["tf32"] = _TF32[it.precision]
    elif it.precision in (Precision.FP32, Precision.TF32):
        sets.remove("precision")
    if it.compile is not Compile.OFF:
        fields["torch_compile_mode"] = it.compile.value
    if it.checkpointing is Checkpointing.OWN:
        fields["gradient_checkpointing"] = True
        fields["gradient_checkpointing_kwargs"] = {"use_reentrant": False}
        sets.add("checkpointing")
    if it.loader_workers is not None:
        fields["dataloader_num_workers"] = it.loader_workers
    if it.pin_memory:
        fields["dataloader_pin_memory"] = True
    sets |= _add_parallel(fields, it, recommendation.world)
    return Draft(text=json_text(fields), sets=frozenset(sets), notes=tuple(_notes(recommendation, sets)))


def _add_parallel(fields: dict[str, Any], it: Settings, world: int) -> set[str]:
    """Fields for several ranks; returns the settings that they hold. Started by ``torchrun``, Trainer uses DDP by itself."""
    if world == 1:
        return set()
    if it.parallel is Parallel.DDP:
        fields |= {"ddp_bucket_cap_mb": it.bucket_mb} if it.bucket_mb != Settings().bucket_mb else {}
        fields |= {"ddp_static_graph": True} if it.static_graph else {}
        return {"parallel", "bucket_mb", "static_graph"}
    if it.parallel is Parallel.FSDP:
        fields["fsdp"] = True
        fields["fsdp_config"] = {
            "fsdp_version": 2,
            "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "reshard_after_forward": it.reshard,
            "cpu_offload": it.offload,
        }
        return {"parallel", "reshard", "offload"}
    return set()


def _notes(recommendation: Recommendation, sets: set[str]) -> list[Note]:
    it = recommendation.settings
    notes = []
    if it.precision is Precision.FP16:  # whose devices may have no tf32: no field
        notes.append(recommendation.note("precision", beside_autocast(recommendation, on_cpu="fp32")))
        if "init_scale" in recommendation.changed:
            scaler = f"trainer.accelerator.scaler = {by_hand('init_scale', recommendation)}"
            notes.append(recommendation.note("init_scale", f"{scaler}, before trainer.train()"))
    if it.compile is not Compile.OFF and it.precision is Precision.DEFAULT and recommendation.device == "cuda":
        tf32 = "with torch_compile, transformers allows tf32 in matrix products, which was not measured"
        notes.append(recommendation.note("compile", f'{tf32}; "tf32": false keeps it off'))
    if it.checkpointing is Checkpointing.OWN:
        renamed = "gradient_checkpointing is called activation_checkpointing from release 6 on"
        notes.append(recommendation.note("checkpointing", renamed))
    if "reshard" in sets:
        wrapped = (
            "in release 5; blocks are those that the model names in _no_split_modules, measured were its repeated ones"
        )
        notes.append(recommendation.note("parallel", wrapped))
    if has_ddp(it) and it.bucket_view and recommendation.world > 1:
        handler = f"DistributedDataParallelKwargs({ddp_options(it)})"
        notes.append(recommendation.note("bucket_view", f"no field; trainer.accelerator.ddp_handler = {handler}"))
    if it.static_graph and "static_graph" in sets:
        notes.append(recommendation.note("static_graph", "ddp_static_graph is a field from release 5 on"))
    if it.optimizer in _ADAMW:
        name = f'"optim": "{_ADAMW[it.optimizer]}" where the optimizer is AdamW'
        notes.append(recommendation.note("optimizer", f"{name}; else {by_hand('optimizer', recommendation)}"))
    return notes
