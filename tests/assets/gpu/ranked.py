"""Ranks on devices of their own, and one that runs out of memory: `ranked.py PHASE LIMIT RANK`; `none` = it does not.

The instant at which it does, on `time.monotonic`, goes into the file that PLANTED_INSTANT names.
"""

import os
import sys
import time
from pathlib import Path

import torch
from torch import nn

PHASE, LIMIT, RANK = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
WIDTH = 1024
LAYERS = 16
"""64 MiB of gradients: more than one bucket, so that some are being averaged while later ones are made."""

told, size, steps = 0, 0, 0


def wrong(phase: str, device: torch.device) -> None:
    if phase == PHASE and size > LIMIT and told == RANK and steps >= 2:
        Path(os.environ["PLANTED_INSTANT"]).write_text(repr(time.monotonic()))
        torch.empty(64 << 30, dtype=torch.uint8, device=device)


class Watched(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value):
        return value.clone()

    @staticmethod
    def backward(ctx, gradient):
        wrong("backward", gradient.device)
        return gradient


class Middle(nn.Module):
    def forward(self, value):
        return Watched.apply(value)


def make_model() -> nn.Module:
    layers = [nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]
    return nn.Sequential(*layers[: LAYERS // 2], Middle(), *layers[LAYERS // 2 :])


def make_batch(batch_size: int, rank: int, world_size: int) -> torch.Tensor:
    global told, size, steps
    assert "RANK" not in os.environ or (rank, world_size) == (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    told, size, steps = rank, batch_size, steps + 1
    return torch.randn(batch_size, 64, WIDTH)


def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    assert batch.device.index == int(os.environ["LOCAL_RANK"]), "on the device of another rank"
    out = model(batch)
    wrong("forward", batch.device)
    return out.square().mean()


def make_optimizer(params: list[nn.Parameter]) -> torch.optim.Optimizer:
    optimizer = torch.optim.AdamW(params)
    device = torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_initialized() else torch.device("cpu")
    optimizer.register_step_pre_hook(lambda *_: wrong("optimizer", device))
    return optimizer
