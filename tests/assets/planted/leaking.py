"""A workload that may keep something of every step: `leaking.py KIND`."""

import sys

import torch
from torch import nn

KIND = sys.argv[1] if len(sys.argv) > 1 else ""
KEPT: list[object] = []


def make_model() -> nn.Module:
    return nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1))


def make_batch(batch_size: int) -> torch.Tensor:
    return torch.rand(batch_size, 512)


def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    assert isinstance(model, nn.Sequential)
    hidden = model[:2](batch)
    result: torch.Tensor = model[2:](hidden).pow(2).mean()
    if KIND == "loss":
        KEPT.append(result)
    elif KIND == "detached":
        KEPT.append(result.detach())
    elif KIND == "items":
        KEPT.append(result.item())
    elif KIND == "output":
        KEPT.append(hidden)
    elif KIND == "warm-up" and len(KEPT) < 2:
        KEPT.append(torch.ones(1 << 20))
    return result


def make_optimizer(params: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.Adam(params)
