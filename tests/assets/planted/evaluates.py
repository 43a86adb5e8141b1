"""A script that searches for functions, with an evaluation that fails above five samples and without one; prints JSON."""

import json
from dataclasses import asdict

import torch
from torch import nn

from autotune import MaxBatch, find_max_batch


def make_model() -> nn.Module:
    return nn.Linear(4, 1)


def make_batch(batch_size: int) -> torch.Tensor:
    return torch.ones(batch_size, 4)


def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    return model(batch).pow(2).mean()


def evaluate(model: nn.Module, batch: torch.Tensor) -> None:
    if len(batch) > 5:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")
    model(batch)


def search(**options: object) -> MaxBatch:
    return find_max_batch(
        make_model,
        make_batch,
        loss=loss,
        device="cpu",
        memory_limit="1GiB",
        max_batch=8,
        storage="ledger",
        **options,  # type: ignore[arg-type]
    )


found = search(evaluate=evaluate, eval_batch=7), search()
print(json.dumps([[int(one), one.evaluation and list(asdict(one.evaluation).values())] for one in found]))
