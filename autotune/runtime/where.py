"""Which device a training runs on, and which file is this process's own."""

from pathlib import Path

import torch

from autotune.errors import UsageError


def device_of(optimizer: torch.optim.Optimizer) -> torch.device:
    """Of what it optimizes.

    Raises:
        UsageError: it has no parameters.
    """
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            found: torch.device = parameter.device
            return found
    raise UsageError("the optimizer has no parameters", hint="make it after the model: optimizer(model.parameters())")


def rank_here() -> int | None:
    """Of this process, where several train together; None where it trains alone."""
    if (
        torch.distributed.is_available()
        and torch.distributed.is_initialized()
        and torch.distributed.get_world_size() > 1
    ):
        return torch.distributed.get_rank()
    return None


def of_rank(path: Path) -> Path:
    """The file of this process, where several train together."""
    rank = rank_here()
    return path if rank is None else path.with_name(f"{path.stem}.rank{rank}{path.suffix}")
