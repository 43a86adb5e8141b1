"""A small network of repeated blocks that says it is out of memory above LIMIT samples, and, where it is not one of several
ranks, at every size: for trying benchmarks/ranks.py without GPUs."""

import torch
from torch import distributed, nn

LIMIT = 37
LENGTH = 64
WIDTH = 16


def make_model() -> nn.Module:
    blocks = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(3)]
    return nn.Sequential(nn.Linear(1, WIDTH), nn.Sequential(*blocks), nn.Linear(WIDTH, 1))


def make_batch(batch_size: int) -> dict[str, torch.Tensor]:
    inputs = torch.randn(batch_size, LENGTH, 1)
    return {"inputs": inputs, "targets": -inputs}


def loss(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    if len(batch["inputs"]) > LIMIT or not distributed.is_initialized():
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.00 GiB.")
    return nn.functional.mse_loss(model(batch["inputs"]), batch["targets"])


def make_optimizer(params: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(params, lr=1e-3)


def shorten(batch: dict[str, torch.Tensor], share: float) -> dict[str, torch.Tensor]:
    """The batch of shorter sequences that a real data set has between long ones."""
    return {name: values[:, : round(LENGTH * share)].contiguous() for name, values in batch.items()}
