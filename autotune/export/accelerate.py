"""A configuration for ``accelerate launch --config_file FILE script.py``, with the keys that ``accelerate config`` writes.

Checked with release 1.15, which refuses files with keys it does not know. It has none for batch size and accumulation
(outside its DeepSpeed section): those are arguments in the script.
"""

from typing import Any

from autotune.export.by_hand import beside_autocast, ddp_options, has_ddp
from autotune.export.nouns import Draft, Note, Recommendation
from autotune.export.text import yaml_text
from autotune.model import Compile, Parallel, Precision

_PRECISION = {Precision.BF16: "bf16", Precision.FP16: "fp16"}


def config_file(recommendation: Recommendation) -> Draft:
    """YAML for one machine."""
    it = recommendation.settings
    sets = {"compile"}
    if it.precision in _PRECISION:
        sets.add("precision")
    content: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "debug": False,
        "distributed_type": _distributed_type(recommendation),
    }
    if it.compile is not Compile.OFF:
        content["dynamo_config"] = {
            "dynamo_backend": "INDUCTOR",
            "dynamo_mode": it.compile.value,
            "dynamo_use_dynamic": False,
            "dynamo_use_fullgraph": False,
            "dynamo_use_regional_compilation": False,
        }
    if _is_sharded(recommendation):
        content["fsdp_config"] = {
            "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "fsdp_offload_params": it.offload,
            "fsdp_reshard_after_forward": it.reshard,
            "fsdp_state_dict_type": "SHARDED_STATE_DICT",
            "fsdp_version": 2,
        }
        sets |= {"parallel", "reshard", "offload"}
    elif it.parallel is Parallel.DDP and recommendation.world > 1:
        sets.add("parallel")
    content |= {
        "enable_cpu_affinity": False,
        "machine_rank": 0,
        "main_training_function": "main",
        "mixed_precision": _PRECISION.get(it.precision, "no"),
        "num_machines": 1,
        "num_processes": recommendation.world,
        "rdzv_backend": "static",
        "same_network": True,
        "use_cpu": recommendation.device == "cpu",
    }
    return Draft(text=yaml_text(content), sets=frozenset(sets), notes=tuple(_notes(recommendation)))


def _is_sharded(recommendation: Recommendation) -> bool:
    return recommendation.settings.parallel is Parallel.FSDP and recommendation.world > 1


def _distributed_type(recommendation: Recommendation) -> str:
    if recommendation.world == 1:
        return "NO"
    if _is_sharded(recommendation):
        return "FSDP"
    return f"MULTI_{'GPU' if recommendation.device == 'cuda' else recommendation.device.upper()}"


def _notes(recommendation: Recommendation) -> list[Note]:
    it, batch = recommendation.settings, recommendation.micro_batch
    notes = [Note(about="micro_batch", value=str(batch), advice=f"no key; DataLoader(..., batch_size={batch})")]
    if it.accumulate > 1:
        argument = f"Accelerator(gradient_accumulation_steps={it.accumulate})"
        notes.append(
            recommendation.note("accumulate", f"no key; {argument}, and each batch under accelerator.accumulate(model)")
        )
    if recommendation.world > 1 and recommendation.device == "cpu":
        started = f"on the CPU accelerate launch starts one process; torchrun --nproc-per-node={recommendation.world}"
        notes.append(Note(about="num_processes", value=str(recommendation.world), advice=started))
    if _is_sharded(recommendation):
        wrapped = (
            "blocks are those that the model names in _no_split_modules; for others fsdp_transformer_layer_cls_to_wrap"
        )
        notes.append(recommendation.note("parallel", wrapped))
    if has_ddp(it) and recommendation.world > 1 and ddp_options(it):
        handler = f"Accelerator(kwargs_handlers=[DistributedDataParallelKwargs({ddp_options(it)})])"
        names = [name for name in ("bucket_mb", "bucket_view", "static_graph") if name in recommendation.changed]
        notes += [recommendation.note(name, f"no key; {handler}") for name in names]
    if it.precision in _PRECISION:
        notes.append(recommendation.note("precision", beside_autocast(recommendation, on_cpu="fp32")))
    if it.precision is Precision.FP16 and "init_scale" in recommendation.changed:
        scaler = f"GradScalerKwargs(init_scale={it.init_scale!r})"
        notes.append(recommendation.note("init_scale", f"Accelerator(kwargs_handlers=[{scaler}])"))
    return notes
