"""`visited.py FOLDER BYTES`: the model of mlp.py; another process holds BYTES of the device while the second probe starts.

It comes when the probe has looked at what others hold and has no limit yet, and leaves before the model is placed.
"""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

FOLDER, HELD_BYTES = Path(sys.argv[1]), int(sys.argv[2])
ROWS = 1024
WIDTH = 1024
VISITOR = """
import sys
import torch

held = torch.empty(int(sys.argv[1]), dtype=torch.uint8, device="cuda")
torch.cuda.synchronize()
print("here", flush=True)
sys.stdin.read()
del held
torch.cuda.empty_cache()
"""
visitor: "subprocess.Popen[str] | None" = None


def arrive() -> None:
    """Called by torch as it starts the device in this process."""
    global visitor
    if not (FOLDER / "trained").exists() or (FOLDER / "visited").exists():
        return
    (FOLDER / "visited").touch()
    command = [sys.executable, "-c", VISITOR, str(HELD_BYTES)]
    visitor = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert visitor.stdout is not None and visitor.stdout.readline() == "here\n", "the other process holds nothing"


def leave() -> None:
    """Returns when it is gone."""
    global visitor
    if visitor is not None:
        visitor.communicate()
        visitor = None


class Visited(nn.Sequential):
    """Lets the visitor go when it is placed on the device."""

    def _apply(self, fn: Callable[..., object], recurse: bool = True) -> "Visited":
        leave()
        return super()._apply(fn, recurse)


def make_model() -> nn.Module:
    layers = [layer for _ in range(4) for layer in (nn.Linear(WIDTH, WIDTH), nn.GELU())]
    return Visited(*layers)


def make_batch(batch_size: int) -> torch.Tensor:
    return torch.randn(batch_size, ROWS, WIDTH)


def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    if batch.is_cuda:
        (FOLDER / "trained").touch()
    return model(batch).float().pow(2).mean()


def make_optimizer(params: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(params)


torch.cuda._lazy_call(arrive)
