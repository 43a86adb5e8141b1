"""Batches of every form: `batches.py FORM [noise]`. FORM `each` gives the n-th form at batch size n; noise prints a lot."""

import dataclasses
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from descent import Descent
from torch import nn

FORM, *OPTIONS = sys.argv[1:]


class Pair(NamedTuple):
    inputs: torch.Tensor
    targets: torch.Tensor


@dataclasses.dataclass(frozen=True)
class Sample:
    inputs: torch.Tensor
    names: list[str]


def pair(n: int) -> Pair:
    return Pair(torch.ones(n, 4), torch.ones(n, 1))


FORMS: dict[str, Callable[[int], Any]] = {
    "tensor": lambda n: pair(n).inputs,
    "tuple": lambda n: tuple(pair(n)),
    "list": lambda n: list(pair(n)),
    "dict": lambda n: pair(n)._asdict(),
    "dataclass": lambda n: Sample(torch.ones(n, 4), ["name"] * n),
    "named tuple": pair,
    "nested": lambda n: {"both": [pair(n), Sample(torch.ones(n, 4), ["name"] * n)], "epoch": 3, "note": None},
}


def form(batch_size: int) -> str:
    return list(FORMS)[batch_size - 1] if FORM == "each" else FORM


def noise() -> None:
    if "noise" in OPTIONS:
        print('{"complete": true, "batch": {"max_batch": 999}}')
        print("\x00\x1b[31m]}\ufffd noise", file=sys.stderr, flush=True)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 1)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        noise()
        return self.linear(inputs)


def make_model() -> nn.Module:
    return Model()


def make_batch(batch_size: int) -> Any:
    return FORMS[form(batch_size)](batch_size)


def loss(model: nn.Module, batch: Any) -> torch.Tensor:
    """Takes each batch apart by its own form; any other form raises."""
    match batch:
        case torch.Tensor() as inputs:
            pass
        case Pair(inputs=inputs) | Sample(inputs=inputs) | {"inputs": inputs} | [torch.Tensor() as inputs, _]:
            pass
        case {
            "both": [Pair(targets=torch.Tensor()), Sample(inputs=inputs, names=["name", *_])],
            "epoch": 3,
            "note": None,
        }:
            pass
    assert type(batch) is type(make_batch(len(inputs)))
    return model(inputs).pow(2).mean()


def make_optimizer(params: list[nn.Parameter]) -> torch.optim.Optimizer:
    return Descent(params, {})


noise()
