"""`crowded.py FOLDER TIMES`: while probes of 6 samples and more run, the process of tenant.py grows, TIMES times in all."""

import sys
import time
from pathlib import Path

import torch
from torch import nn

FOLDER, TIMES = Path(sys.argv[1]), int(sys.argv[2])
WIDTH = 1024
asked_here = False


def make_model() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH))


def make_batch(batch_size: int) -> torch.Tensor:
    if batch_size >= 6:
        crowd()
    return torch.randn(batch_size, 4096, WIDTH)


def crowd() -> None:
    """Once a process."""
    global asked_here
    number = len(list(FOLDER.glob("grow-*"))) + 1
    if asked_here or number > TIMES:
        return
    asked_here = True
    (FOLDER / f"grow-{number}").touch()
    deadline = time.monotonic() + 30
    while not (FOLDER / f"grown-{number}").exists():
        assert time.monotonic() < deadline, "the other process does not grow"
        time.sleep(0.01)


def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    return model(batch).pow(2).mean()
