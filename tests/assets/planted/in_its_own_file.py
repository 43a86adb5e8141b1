"""A file that searches for its own Task: under a main guard, or with PLANTED_UNGUARDED wherever it is loaded."""

import os
from pathlib import Path

import torch
from torch import nn

from autotune import find_max_batch

with Path("runs").open("a") as runs:
    runs.write("once\n")


class Task:
    def make_model(self) -> nn.Module:
        return nn.Linear(4, 1)

    def make_batch(self, batch_size: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.ones(batch_size, 4), torch.ones(batch_size, 1)


if __name__ == "__main__" or "PLANTED_UNGUARDED" in os.environ:
    found = find_max_batch(f"{__file__}:Task", device="cpu", max_batch=1, storage="ledger")
    print("largest:", found.batch_size)
