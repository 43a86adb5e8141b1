"""A model that several processes train together. The process group is the caller's: a probe's, or that of ``torchrun``."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def parallelise(model: nn.Module, *, device: torch.device) -> nn.Module:
    """The model, wrapped in ``DistributedDataParallel`` where more than one process is in the group; else itself.

    Call it after ``Applied.prepare`` and before the optimizer is made.

    Args:
        model: on the device.
        device: of this process.
    """
    distributed = torch.distributed
    if not distributed.is_available() or not distributed.is_initialized() or distributed.get_world_size() == 1:
        return model
    return DistributedDataParallel(model, device_ids=[device] if device.type == "cuda" else None)


def is_parallel(model: nn.Module) -> bool:
    """Whether ``parallelise`` has wrapped it."""
    return isinstance(model, DistributedDataParallel)


def accumulating(model: nn.Module, *, last: bool) -> AbstractContextManager[None]:
    """The context for forward and backward of one micro-batch: gradients are averaged over the ranks in the last one only.

    Args:
        model: as ``parallelise`` returned it.
        last: whether the optimizer's step follows.
    """
    if last or not isinstance(model, DistributedDataParallel):
        return nullcontext()
    return model.no_sync()
