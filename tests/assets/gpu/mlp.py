"""A wide MLP: 32 MiB of activations a sample, so that small limits are found in few probes. `mlp.py [KIND]`."""

import sys

import torch
from torch import nn

KIND = sys.argv[1] if len(sys.argv) > 1 else ""
ROWS = 1024
WIDTH = 1024


def make_model() -> nn.Module:
    layers = [layer for _ in range(4) for layer in (nn.Linear(WIDTH, WIDTH), nn.GELU())]
    return nn.Sequential(*layers)


def make_batch(batch_size: int) -> torch.Tensor:
    return torch.randn(batch_size, ROWS, WIDTH)


def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    out = model(batch)
    if KIND == "assert" and len(batch) >= 4:
        rows = torch.zeros(8, 8, device=batch.device)
        out = out + nn.functional.embedding(torch.tensor([100], device=batch.device), rows).sum()
    if KIND == "fused_nan":
        out = out / 0
    if KIND == "leak":
        KEPT.append(out)
    return out.float().pow(2).mean()


def make_optimizer(params: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(params, fused=KIND == "fused_nan" or None)


KEPT: list[torch.Tensor] = []


if KIND == "cuda_at_import":
    torch.zeros(1, device="cuda")
