"""The ranks of one training, as ``torch.distributed`` knows them, and tensors that lie in shards on them.

Nothing here starts a process group: whoever starts the ranks does (``torch.distributed.init_process_group``).
"""

import gc
import os
import sys
import zlib
from collections.abc import Iterator
from typing import cast

import torch
import torch.distributed as dist
from torch import nn

from autotune.apply.unsupported import Unsupported
from autotune.errors import UsageError

if dist.is_available():
    # Functions of this module take the group that there is when it is imported as their default, and DDP imports it late
    # (PyTorch 2.13): a group that they refer to is never destroyed. So it is imported before there is one.
    import torch.distributed.nn.functional


def count() -> int:
    """Ranks that train together; 1 without a process group."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def check_joined() -> None:
    """See that a process which is to train with others has met them.

    Raises:
        UsageError: it was started as one of several (``WORLD_SIZE``), and there is no process group yet.
    """
    started = os.environ.get("WORLD_SIZE", "1")
    joined = dist.is_available() and dist.is_initialized()
    if not joined and started.isdigit() and int(started) > 1:
        raise UsageError(
            f"this process is one of {started} ranks, and torch.distributed does not know the others yet",
            hint="call torch.distributed.init_process_group() before the model is prepared",
        )


def leave_group() -> None:
    """Destroy the process group at the end of a training, once its model and optimizer are gone.

    ``destroy_process_group`` by itself leaves the threads of gloo running where anything still refers to a group: cycles
    of Python objects do, and DTensor's cache of shardings (FSDP, tensor parallel). Such a thread that lets go of the last
    work while Python ends makes the process abort after all was done (``terminate called without an active exception``;
    PyTorch 2.13, on a busy machine).
    """
    if not (dist.is_available() and dist.is_initialized()):
        return
    gc.collect()
    if "torch.distributed.tensor" in sys.modules:
        from torch.distributed.tensor import debug

        clear = getattr(debug, "_clear_sharding_prop_cache", None)  # PyTorch has no public name for it
        if clear is not None:
            clear()
    dist.destroy_process_group()


def unwrapped(model: nn.Module) -> nn.Module:
    """The user's own model inside of what ``parallelise`` returned: its parameters have the names they always had."""
    inner = getattr(model, "module", None)
    return inner if isinstance(model, nn.parallel.DistributedDataParallel) and isinstance(inner, nn.Module) else model


def is_sharded(value: torch.Tensor) -> bool:
    """Whether the tensor is spread over ranks (a ``DTensor``)."""
    return _local(value) is not None


def local(value: torch.Tensor) -> torch.Tensor:
    """What of a tensor lies on this rank; a plain tensor itself."""
    mine = _local(value)
    return value if mine is None else mine


def whole(value: torch.Tensor) -> torch.Tensor:
    """The whole tensor on this rank; a plain one itself. All ranks must ask for the same tensors in the same order."""
    if not is_sharded(value):
        return value
    from torch.distributed.tensor import DTensor

    assert isinstance(value, DTensor)
    # Shards that wait on the host are put together where the ranks can talk: NCCL takes nothing from there.
    moved = cast(DTensor, value.to(value.device_mesh.device_type))
    made: torch.Tensor = moved.full_tensor()
    return made


def fill(value: torch.Tensor, content: torch.Tensor) -> None:
    """Put a whole tensor, equal on all ranks, into one that may be spread over them; without gradient."""
    with torch.no_grad():
        if not is_sharded(value):
            value.copy_(content)
            return
        from torch.distributed.tensor import DTensor, distribute_tensor

        assert isinstance(value, DTensor)
        # On the device of the group, which for offloaded shards is not where they wait.
        moved = content.to(value.device_mesh.device_type)
        spread = distribute_tensor(moved, value.device_mesh, value.placements)
        local(value).copy_(local(spread))


def align(model: nn.Module, device: torch.device) -> None:
    """Let all ranks begin with the weights and buffers of rank 0, where they differ.

    FSDP2 and tensor parallel take it that ranks made the same model, and would put one together of unequal shards. Whether
    they did is told by the first and the last number of each tensor; sending whole models is spared where they agree.

    Raises:
        Unsupported: the ranks made models of different shapes.
    """
    tensors = [each.detach() for each in _held(model) if each.numel()]
    shapes = zlib.crc32(repr([(tuple(each.shape), each.dtype) for each in tensors]).encode())
    if not _agree(torch.tensor([shapes, len(tensors)], device=device, dtype=torch.int64)):
        raise Unsupported("the ranks have models of different shapes, and cannot train one together")
    ends = [torch.view_as_real(each) if each.is_complex() else each for each in tensors]
    seen = [float(end.flatten()[at]) for end in ends for at in (0, -1)]
    if not seen or _agree(torch.tensor(seen, device=device, dtype=torch.float64).nan_to_num()):
        return
    for each in tensors:
        moved = each.to(device)
        dist.broadcast(moved, src=0)
        each.copy_(moved)


def _held(model: nn.Module) -> Iterator[torch.Tensor]:
    yield from model.parameters()
    yield from model.buffers()


def _agree(mine: torch.Tensor) -> bool:
    """Whether these numbers are the same on all ranks; all of them learn the same answer."""
    least, most = mine.clone(), mine.clone()
    dist.all_reduce(least, op=dist.ReduceOp.MIN)
    dist.all_reduce(most, op=dist.ReduceOp.MAX)
    return bool((least == most).all())


def _local(value: torch.Tensor) -> torch.Tensor | None:
    """This rank's part; None for a plain tensor. Told by what it can do: the class is not imported for single ranks."""
    to_local = getattr(value, "to_local", None)
    if to_local is None or not hasattr(value, "placements"):
        return None
    part: torch.Tensor = to_local()
    return part
