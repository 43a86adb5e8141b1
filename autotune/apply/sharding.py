"""FSDP2: parameters, gradients and optimizer state in shards, gathered block by block while they are needed."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from autotune.apply import ranks
from autotune.apply.blocks import find_blocks
from autotune.apply.unsupported import Unsupported
from autotune.model import MemoryFormat, Precision, Settings

_GATHERED = {Precision.BF16: torch.bfloat16, Precision.FP16: torch.float16}
"""What parameters are gathered in: autocast would turn each into it anyway, after twice the traffic."""


def check(model: nn.Module, settings: Settings) -> None:
    """See that the model can be sharded.

    Raises:
        Unsupported: it has no repeated blocks, blocks that share parameters with other parts, or the settings ask for a
            memory format that FSDP2 does not shard.
    """
    if settings.memory_format is MemoryFormat.CHANNELS_LAST:
        raise Unsupported("FSDP2 shards no parameters in channels_last order")
    blocks = find_blocks(model)
    if not blocks:
        raise Unsupported("the model has no repeated blocks, and FSDP2 shards these one after the other")
    owner: dict[int, str] = {}
    for name, holder, parameter in _everywhere(model, blocks):
        if owner.setdefault(id(parameter), holder) != holder:
            raise Unsupported(
                f"parameter {name} is shared between {_place(holder)} and {_place(owner[id(parameter)])},"
                " and FSDP2 shards each block by itself"
            )


def apply(model: nn.Module, settings: Settings, device: torch.device) -> None:
    """Shard each block, then what is left; in place. The model may lie on the host: no more than one block at a time
    is whole on the device.

    Parameters become ``DTensor`` shards that keep their names. Gradients are averaged over the ranks in full precision.

    Raises:
        Unsupported: this PyTorch has no FSDP2.
    """
    try:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard
    except ImportError as error:
        raise Unsupported(f"PyTorch {torch.__version__} has no fully_shard: {error}") from error
    blocks = [model.get_submodule(name) for name in find_blocks(model)]
    ranks.align(model, device)
    gathered = _GATHERED.get(settings.precision)
    options: dict[str, Any] = {
        "mesh": init_device_mesh(device.type, (ranks.count(),)),
        "mp_policy": MixedPrecisionPolicy(
            param_dtype=gathered, reduce_dtype=None if gathered is None else torch.float32
        ),
        "offload_policy": CPUOffloadPolicy() if settings.offload else OffloadPolicy(),
    }
    for block in blocks:
        fully_shard(block, reshard_after_forward=settings.reshard, **options)
    # The backward pass begins where the forward pass of the root ends: gathering it anew would gain nothing.
    fully_shard(model, reshard_after_forward=False, **options)


def sync(model: nn.Module, settings: Settings, *, last: bool) -> None:
    """Say before a micro-batch whether gradients go into the shards at its end.

    With ``reshard`` they always do, since whole gradients would lie on each rank until then; else only in the ``last``
    one of a step, which saves the traffic.
    """
    model.set_requires_gradient_sync(last or settings.reshard)  # type: ignore[operator]


def _everywhere(model: nn.Module, blocks: tuple[str, ...]) -> Iterator[tuple[str, str, nn.Parameter]]:
    """Each place of each parameter: its name, the block it lies in (empty = none), itself."""
    for name, parameter in model.named_parameters(remove_duplicate=False):
        yield name, next((block for block in blocks if name.startswith(f"{block}.")), ""), parameter


def _place(block: str) -> str:
    return block or "what lies outside of the blocks"
