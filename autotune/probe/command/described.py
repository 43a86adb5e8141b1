"""What a rehearsed command trains, and on what machine, told from within it."""

import re
import sys
from dataclasses import asdict
from pathlib import Path

import torch

from autotune.model import OptimizerKind, Traits, WorkloadInfo, digest, short_digest
from autotune.probe.abilities import with_abilities
from autotune.probe.command.batches import Batches
from autotune.probe.command.orders import HookOrder
from autotune.probe.devices import look_at_device
from autotune.probe.others import with_others
from autotune.probe.recorder import Recorder
from autotune.probe.steps import storage_bytes
from autotune.workload.fingerprint import code_parts, loaded_code

_TRAITS = Traits(
    own_checkpointing="the command",
    convolutions=True,
    attention=True,
    optimizer_kinds=(OptimizerKind.FOR_LOOP, OptimizerKind.FOREACH, OptimizerKind.FUSED),
    data_set=True,
)
"""What a command can do is known to its author, who says so by a template."""


def describe(
    order: HookOrder, recorder: Recorder, optimizer: torch.optim.Optimizer, batches: Batches
) -> dict[str, object]:
    """JSON-able ``{"workload": WorkloadInfo fields, "machine": Machine fields, "known": a batch and the size that was told}``.

    The command itself is for the tool to add.
    """
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    # the meter's device: parameters may be sharded, or kept on the host
    on_cpu = recorder.meter.non_pytorch() is None
    machine = look_at_device("cpu" if on_cpu else f"cuda:{torch.cuda.current_device()}")
    script = getattr(sys.modules["__main__"], "__file__", None)
    file = Path(script).resolve() if script else None
    code = loaded_code([Path(order.directory), *([file.parent] if file else [])], file)
    shapes = [[list(one.shape), str(one.dtype)] for one in parameters]
    batch = batches.words or "not seen"
    info = WorkloadInfo(
        ref="",
        fingerprint=digest(
            {"code": code, "parameters": shapes, "batch": _form(batch), "data_set_size": batches.data_set_size}
        ),
        recognised=(),
        parameters=sum(one.numel() for one in parameters),
        trainable_parameters=sum(one.numel() for one in parameters if one.requires_grad),
        parameters_bytes=storage_bytes(parameters),
        trainable_bytes=storage_bytes([one for one in parameters if one.requires_grad]),
        optimizer=type(optimizer).__name__,
        batch=batch,
        data_set_size=batches.data_set_size,
        evaluates=False,  # not apart from training, at a size of its own
        traits=with_abilities(_TRAITS, machine),
        parts=(
            *code_parts(code),
            ("parameters", short_digest(shapes)),
            ("shape of a batch", short_digest(_form(batch))),
            ("size of the data set", short_digest(batches.data_set_size)),
        ),
    )
    known = {"size": order.batch_size, "extents": batches.extents}
    return {"workload": asdict(with_others(info, machine)), "machine": asdict(machine), "known": known}


def _form(batch: str) -> str:
    """A described batch without its lengths: which samples come first, and how long they are, is a matter of chance."""
    return re.sub(r"\d+(?=[,\]])", "N", batch)
