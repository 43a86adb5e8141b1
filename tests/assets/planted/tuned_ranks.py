"""Ranks under several settings, for `tuned_ranks.py @FILE`; each child reads one word from the file.

``slow``: as the user has it a step is slow, in bf16 it is faster, and in fp16 it is the fastest but trains something else;
with gradients in buckets nobody averages them. How slow is planted: what the machine is good at decides nothing.
``averaged``: ranks see different samples, and the optimizer refuses gradients that differ between them.
``parts``: the loss calls the layers one after the other, and refuses samples that differ between ranks.
"""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

WIDTH = 16
SLEEPS_S = {None: 0.1, torch.bfloat16: 0.05, torch.float16: 0.0}
"""For each sample, by the format of autocast."""
KIND = "slow"


def read_kind() -> None:
    """What this process is to do."""
    global KIND
    KIND = Path(sys.argv[1].removeprefix("@")).read_text()


os.register_at_fork(after_in_child=read_kind)
read_kind()


class Block(nn.Module):
    """A layer around a shortcut."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.relu(self.layer(x))


class Checking(torch.optim.SGD):
    """Steps with gradients that all ranks have."""

    def step(self, closure: object = None) -> None:  # type: ignore[override]
        if KIND == "averaged":
            for parameter in self.param_groups[0]["params"]:
                of_all = [torch.empty_like(parameter.grad) for _ in range(dist.get_world_size())]
                dist.all_gather(of_all, parameter.grad)
                if any(not torch.equal(one, of_all[0]) for one in of_all):
                    raise RuntimeError("gradients differ between ranks")
        super().step()


def make_model() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), *(Block() for _ in range(3)), nn.Linear(WIDTH, 2))


def make_plan() -> dict[str, str]:
    return {"0": "colwise_rep"}


def make_optimizer(params: list[nn.Parameter]) -> torch.optim.Optimizer:
    return Checking(params, lr=0.01)


def make_batch(batch_size: int, rank: int, world_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    if dist.is_initialized():
        assert (rank, world_size) == ((0, 1) if KIND == "parts" else (dist.get_rank(), 2))
    return torch.randn(batch_size, WIDTH), torch.randn(batch_size, 2)


def loss(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    x, y = batch
    if KIND == "averaged":
        return nn.functional.mse_loss(model(x + dist.get_rank()), y)
    if KIND == "parts":
        of_all = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(of_all, x)
        if any(not torch.equal(one, x) for one in of_all):
            raise RuntimeError("samples differ between ranks")
        for layer in model.children():
            x = layer(x)
        return nn.functional.mse_loss(x.float(), y)
    lower = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None
    time.sleep(len(x) * SLEEPS_S[lower])
    inner = model.module if getattr(model, "gradient_as_bucket_view", False) else model
    out = inner(2 * x if lower is torch.float16 else x)
    return nn.functional.mse_loss(out.float(), y)
