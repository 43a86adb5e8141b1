"""A workload that waits in the middle of a probe while PLANTED_FOLDER/hold is there: `holding.py [ANY ARGUMENTS]`.

That file says "SIZE STEP" or "SIZE STEP RANK": the batch size and training step (of one process) to wait at, and which of
several ranks waits; the others wait for it then in a collective. A waiting probe first starts three processes that want to live
on, then says so in PLANTED_FOLDER/held-PID. Without the file it trains at once.
"""

import os
import subprocess
import time
from pathlib import Path

import torch
from torch import nn

from tests.assets.planted.descent import Descent

FOLDER = Path(os.environ["PLANTED_FOLDER"])
HOLD = FOLDER / "hold"

steps = 0


def place_to_wait() -> tuple[int, ...] | None:
    try:
        return tuple(int(word) for word in HOLD.read_text().split())
    except FileNotFoundError:
        return None


def start_children() -> None:
    """One child in this group, one in a session of its own, one orphan in a session of its own."""
    subprocess.Popen(["sleep", "300"])
    subprocess.Popen(["sleep", "300"], start_new_session=True)
    subprocess.run(["sh", "-c", "sleep 300 &"], start_new_session=True, check=True)


def wait(size: int, step: int) -> None:
    wanted = place_to_wait()
    here = (size, step, int(os.environ.get("RANK", "0")))
    if wanted is None or wanted != here[: len(wanted)]:
        return
    start_children()
    draft = FOLDER / f"draft-{os.getpid()}"
    draft.touch()
    draft.rename(FOLDER / f"held-{os.getpid()}")
    while place_to_wait() == wanted:
        time.sleep(0.01)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        global steps
        steps += 1
        wait(len(x), steps)
        return self.linear(x)


def make_model() -> nn.Module:
    return Model()


def make_batch(batch_size: int) -> torch.Tensor:
    return torch.ones(batch_size, 4)


def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    return model(batch).pow(2).mean()


def make_optimizer(params: list[nn.Parameter]) -> torch.optim.Optimizer:
    return Descent(params, {})
