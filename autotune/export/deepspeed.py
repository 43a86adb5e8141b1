"""DeepSpeed's JSON configuration, new or merged into the user's own.

Of an own file every key stays that the recommendation has nothing to say about, ZeRO and offloading included. Checked with
release 0.19: ``train_batch_size`` has to be the product of the other two batch keys and the number of devices (under tensor
parallel of what its ``mpu`` counts as data parallel), and ``activation_checkpointing`` is no switch, but options for a
function that the model has to call itself.
"""

import math
from collections.abc import Mapping
from typing import Any

from autotune.export.by_hand import TF32
from autotune.export.merged import Merged
from autotune.export.nouns import Draft, Recommendation
from autotune.export.text import json_text
from autotune.model import Compile, Parallel, Precision

_STAGES = {Parallel.ZERO: 1, Parallel.FSDP: 3}
"""Stages of ZeRO that share out the same: optimizer state; parameters and gradients as well."""
_SECTIONS = {Precision.BF16: "bf16", Precision.FP16: "fp16"}
_OLD_BF16 = "bfloat16"
"""Name of the section bf16 in older files; still read where the new one is missing."""
_AUTOCAST = {
    Precision.BF16: ("bfloat16", "bf16", "torch.bfloat16"),
    Precision.FP16: ("float16", "fp16", "half", "torch.float16"),
}
"""Names of the formats in the section torch_autocast."""


def config(recommendation: Recommendation, own: Mapping[str, Any] | None = None) -> Draft:
    """The configuration.

    Raises:
        UsageError: ``own`` has a value where DeepSpeed has a section.
    """
    it = recommendation.settings
    merged = Merged(own or {})
    merged.put("train_micro_batch_size_per_gpu", recommendation.micro_batch)
    merged.put("gradient_accumulation_steps", it.accumulate)
    if it.parallel is Parallel.TENSOR and recommendation.world > 1:
        merged.leave_out(
            "train_batch_size", "DeepSpeed makes the product with those ranks that have batches of their own"
        )
    else:
        merged.put("train_batch_size", recommendation.micro_batch * it.accumulate * recommendation.world)
    sets = {"accumulate"}
    if it.precision in _SECTIONS:
        sets.add("precision")
    if merged.get("torch_autocast", "enabled") is True:
        _set_autocast(merged, recommendation)
    else:
        sets |= _set_sections(merged, recommendation)
    if recommendation.world > 1:
        sets |= _set_stage(merged, recommendation)
    if it.compile is not Compile.OFF:
        options = f'{{"mode": "{it.compile.value}", "dynamic": False}}'
        merged.notes.append(recommendation.note("compile", f"engine.compile(compile_kwargs={options})"))
    return Draft(text=json_text(merged.content), sets=frozenset(sets), notes=tuple(merged.notes))


def _set_stage(merged: Merged, recommendation: Recommendation) -> set[str]:
    """Choose a stage of ZeRO; returns the settings that it holds. For DDP, DeepSpeed's own stage 0, an own file is left as
    it is."""
    it = recommendation.settings
    if it.parallel not in _STAGES:
        return {"parallel"} if it.parallel is Parallel.DDP else set()
    merged.put("zero_optimization.stage", _STAGES[it.parallel])
    measured = "ZeroRedundancyOptimizer" if it.parallel is Parallel.ZERO else "FSDP2"
    merged.notes.append(recommendation.note("parallel", f"DeepSpeed shards by its own means; measured was {measured}"))
    if it.parallel is Parallel.FSDP and it.offload:
        merged.put("zero_optimization.offload_param", {"device": "cpu"})
        merged.put("zero_optimization.offload_optimizer", {"device": "cpu"})
        return {"parallel", "offload"}
    return {"parallel"}


def _set_sections(merged: Merged, recommendation: Recommendation) -> set[str]:
    """Switch the sections bf16 and fp16; returns which settings beside the precision they hold."""
    it = recommendation.settings
    names = dict(_SECTIONS)
    if _OLD_BF16 in merged.content and "bf16" not in merged.content:
        names[Precision.BF16] = _OLD_BF16
    for precision, section in names.items():
        if precision is not it.precision:
            merged.turn_off(section)
    if it.precision not in names:
        return set()
    merged.put(f"{names[it.precision]}.enabled", True)
    dtype = _AUTOCAST[it.precision][0]
    advice = (
        f"DeepSpeed keeps parameters in {dtype} and fp32 copies of its own, where autocast was measured; "
        f'in newer releases as measured: "torch_autocast": {{"enabled": true, "dtype": "{dtype}"}} instead'
    )
    merged.notes.append(recommendation.note("precision", advice))
    return _set_scale(merged, recommendation) if it.precision is Precision.FP16 else set()


def _set_scale(merged: Merged, recommendation: Recommendation) -> set[str]:
    """Where the gradient scaler begins; an own value stays as long as the recommendation has PyTorch's."""
    scale = recommendation.settings.init_scale
    power = math.frexp(scale)[1] - 1  # scale = m * 2**(power + 1) with m in [0.5, 1)
    if "init_scale" in recommendation.changed or merged.get("fp16", "initial_scale_power") is None:
        merged.put("fp16.initial_scale_power", power)
    if scale == 2.0**power:
        return {"init_scale"}
    merged.notes.append(
        recommendation.note("init_scale", f"DeepSpeed begins at powers of two only; the file has 2**{power}")
    )
    return set()


def _set_autocast(merged: Merged, recommendation: Recommendation) -> None:
    """Say the precision the way an own file says it."""
    names = _AUTOCAST.get(recommendation.settings.precision)
    if names is None:
        merged.turn_off("torch_autocast")
        return
    if merged.get("torch_autocast", "dtype") not in names:
        merged.put("torch_autocast.dtype", names[0])
    merged.notes.append(recommendation.note("precision", TF32))
