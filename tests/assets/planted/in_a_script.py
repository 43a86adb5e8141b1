"""A script without a main guard that searches for functions that share a closure; prints JSON. Runs once, here."""

import json
import operator
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from pathlib import Path

import torch
from torch import nn

from autotune import MaxBatch, find_max_batch

with Path("runs").open("a") as runs:
    runs.write("once\n")


def build(width: int) -> tuple[Callable[[], nn.Module], Callable[[int], torch.Tensor], Callable[..., torch.Tensor]]:
    scale = torch.full((width,), 0.5)

    def make_model() -> nn.Module:
        return nn.Linear(width, 1)

    def make_batch(batch_size: int) -> torch.Tensor:
        return torch.ones(batch_size, width) * scale

    def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        return model(batch).pow(2).mean()

    return make_model, make_batch, loss


def search(fresh: bool = False) -> MaxBatch:
    make_model, make_batch, loss = build(4)
    return find_max_batch(
        make_model,
        make_batch,
        loss=loss,
        device="cpu",
        memory_limit="1GiB",
        max_batch=1,
        storage="ledger",
        fresh=fresh,
    )


def frozen(found: MaxBatch) -> bool:
    try:
        found.batch_size = 3  # type: ignore[misc]
    except FrozenInstanceError:
        return True
    return False


first, second, third = search(), search(), search(fresh=True)
print(
    json.dumps(
        {
            "answers": [int(first), operator.index(second), third.batch_size],
            "refuted": first.refuted_at,
            "new_probes": [found.evidence.new_probes for found in (first, second, third)],
            "from_ledger": [found.evidence.from_ledger for found in (first, second, third)],
            "frozen": frozen(first),
        }
    )
)
