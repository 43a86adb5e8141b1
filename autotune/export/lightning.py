"""Arguments of ``lightning.Trainer`` and of the data loader: ``Trainer(**file["trainer"])``, ``DataLoader(**file["data"])``.

Checked with release 2.6. Trainer has no switch for compiling, activation checkpointing, memory format, attention,
optimizer or environment: those are lines in the LightningModule.
"""

from typing import Any

from autotune.export.by_hand import beside_autocast, by_hand, ddp_options, has_ddp
from autotune.export.nouns import Draft, Note, Recommendation
from autotune.export.text import json_text
from autotune.model import OptimizerKind, Parallel, Precision

_PRECISION = {Precision.BF16: "bf16-mixed", Precision.FP16: "16-mixed"}
_HOOK = "no switch in Trainer; in configure_model() of the LightningModule: "


def trainer_arguments(recommendation: Recommendation) -> Draft:
    """JSON with the arguments of both."""
    it = recommendation.settings
    sets = {"accumulate", "cudnn_benchmark", "loader_workers", "pin_memory"}
    if it.precision in _PRECISION:
        sets.add("precision")
    trainer: dict[str, Any] = {
        "precision": _PRECISION.get(it.precision, "32-true"),
        "accumulate_grad_batches": it.accumulate,
        "devices": recommendation.world,  # left out, Trainer takes all there are, and the effective batch with it
    }
    if recommendation.device == "cpu":
        trainer["accelerator"] = "cpu"
    if recommendation.world > 1 and has_ddp(it):
        trainer["strategy"] = "ddp"
        if it.parallel is Parallel.DDP:
            sets.add("parallel")
    if it.cudnn_benchmark:
        trainer["benchmark"] = True
    data: dict[str, Any] = {"batch_size": recommendation.micro_batch}
    if it.loader_workers is not None:
        data["num_workers"] = it.loader_workers
    if it.pin_memory:
        data["pin_memory"] = True
    return Draft(
        text=json_text({"trainer": trainer, "data": data}), sets=frozenset(sets), notes=tuple(_notes(recommendation))
    )


def _notes(recommendation: Recommendation) -> list[Note]:
    it = recommendation.settings
    notes = []
    if recommendation.eval_batch is not None and recommendation.eval_batch < recommendation.micro_batch:
        size, advice = str(recommendation.eval_batch), "batch_size of the DataLoader that val_dataloader() returns"
        notes.append(Note(about="eval_batch", value=size, advice=advice))
    if it.precision in _PRECISION:
        notes.append(recommendation.note("precision", beside_autocast(recommendation, on_cpu="bf16")))
    if it.precision is Precision.FP16 and "init_scale" in recommendation.changed:
        plugin = f'MixedPrecision("16-mixed", "{recommendation.device}", {by_hand("init_scale", recommendation)})'
        notes.append(recommendation.note("init_scale", f"Trainer(plugins={plugin}) in place of precision"))
    if recommendation.world > 1:
        notes += _of_ranks(recommendation)
    for name in ("checkpointing", "compile", "memory_format"):
        if name in recommendation.changed:
            notes.append(recommendation.note(name, _HOOK + by_hand(name, recommendation)))
    if it.optimizer is not OptimizerKind.DEFAULT:
        advice = f"in configure_optimizers(): {by_hand('optimizer', recommendation)}"
        if it.optimizer is OptimizerKind.FUSED and it.precision is Precision.FP16:
            advice += "; Trainer then refuses gradient_clip_val"
        notes.append(recommendation.note("optimizer", advice))
    return notes


def _of_ranks(recommendation: Recommendation) -> list[Note]:
    """What a JSON file cannot hold of the strategy: an object of its class."""
    it, world = recommendation.settings, recommendation.world
    notes = []
    if has_ddp(it) and ddp_options(it):
        strategy = f"Trainer(strategy=DDPStrategy({ddp_options(it)}))"
        names = [name for name in ("bucket_mb", "bucket_view", "static_graph") if name in recommendation.changed]
        notes += [recommendation.note(name, f"{strategy} in place of its name") for name in names]
    if it.parallel is Parallel.FSDP:
        strategy = f"Trainer(strategy=ModelParallelStrategy(data_parallel_size={world}, tensor_parallel_size=1))"
        where = "in configure_model(), over self.device_mesh['data_parallel']"
        notes.append(recommendation.note("parallel", f"{strategy}, and {where}: {by_hand('parallel', recommendation)}"))
    return notes
