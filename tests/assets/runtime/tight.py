"""Trains with real memory under RLIMIT_DATA, guarded, three times: with nothing kept, with losses kept, and with a
batch that does not fit. Prints a line of JSON for each.

    python tight.py FOLDER_OF_LOGS
"""

import json
import resource
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

import autotune
from autotune.errors import MemoryWarning
from autotune.probe.host import own_data_bytes
from autotune.units import MIB

torch.set_num_threads(1)
WIDTH = 1024


def make_model() -> nn.Sequential:
    """Every Tanh keeps 4 KiB a sample for the backward pass."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, WIDTH), *(nn.Tanh() for _ in range(6)), nn.Linear(WIDTH, 1))


def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    return F.mse_loss(model(batch), batch[:, :1])


def limit(more_bytes: int) -> None:
    """Allow this process so much more than it holds."""
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (own_data_bytes() + more_bytes, hard))


def degrade(log: Path) -> dict[str, Any]:
    """Two steps of a batch too large for the limit; the gradients of the first against those without a limit."""
    torch.manual_seed(1)
    batch = torch.randn(8192, 16)
    alone = make_model()
    torch.autograd.backward(loss(alone, batch))
    wanted = [parameter.grad for parameter in alone.parameters() if parameter.grad is not None]
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    limit(150 * MIB)  # the Tanhs alone keep 192 MiB
    errors = []
    with autotune.guard(model, optimizer, log=log, every=1, least_seconds=0) as guard:
        guard.backward(loss, batch)
        for parameter, gradient in zip(model.parameters(), wanted, strict=True):
            assert parameter.grad is not None
            errors.append(float((parameter.grad - gradient).norm() / gradient.norm()))
        optimizer.step()
        guard.after_step()
        guard.train_step(loss, [batch])
    return {"off": max(errors), **guard.summary().as_fields()}


def keep(log: Path, *, detached: bool) -> dict[str, Any]:
    """Eighty steps, of each of which something is kept: its loss and an activation of 1 MiB, or its loss as a number."""
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    kept: list[object] = []

    def keeping(model: nn.Sequential, batch: torch.Tensor) -> torch.Tensor:
        hidden = model[:2](batch)
        value = F.mse_loss(model[2:](hidden), batch[:, :1])
        kept.append(value.detach() if detached else (value, hidden))
        return value

    limit(600 * MIB)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with autotune.guard(model, optimizer, log=log, every=1, least_seconds=0) as guard:
            for _ in range(80):
                guard.train_step(keeping, [torch.randn(256, 16)])
    told = [str(warning.message) for warning in caught if warning.category is MemoryWarning]
    return {"told": told, **guard.summary().as_fields()}


folder = Path(sys.argv[1])
print(json.dumps(keep(folder / "clean.jsonl", detached=True)))
print(json.dumps(keep(folder / "leak.jsonl", detached=False)))
print(json.dumps(degrade(folder / "degrade.jsonl")))
