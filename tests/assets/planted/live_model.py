"""A script that searches with a live model of 64 MiB, and prints as JSON what the search has changed in this process."""

import gc
import json
import random
from pathlib import Path

import torch
from torch import nn

from autotune import find_max_batch
from autotune.probe import launcher  # noqa: F401 - loaded before memory is looked at, as the ledger is
from autotune.storage.store import Store

WIDTH = 2048


def private_mib() -> int:
    gc.collect()
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["RssAnon"].split()[0]) // 1024


def make_batch(batch_size: int) -> torch.Tensor:
    return torch.ones(batch_size, WIDTH)


def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    return model(batch).pow(2).mean()


model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(4)))
model.eval()
model[1].train()
torch.autograd.backward(model[0](make_batch(1)).sum())
torch.manual_seed(5)
random.seed(5)


def state() -> dict[str, object]:
    return {
        "weights": [float(p.detach().double().sum()) for p in model.parameters()],
        "gradients": [None if p.grad is None else float(p.grad.double().sum()) for p in model.parameters()],
        "modes": [module.training for module in model.modules()],
        "random": hash(random.getstate()),
        "torch random": torch.get_rng_state().tolist(),
    }


Store.open("ledger").close()
before, held = state(), private_mib()
found = find_max_batch(model, make_batch, loss=loss, device="cpu", max_batch=1, storage="ledger")
grown = private_mib() - held
after = state()
print(
    json.dumps(
        {
            "answer": int(found),
            "changed": [name for name in before if before[name] != after[name]],
            "parameters": found.evidence.workload.parameters,
            "parameters_bytes": found.evidence.certificate.measurement.composition.parameters_bytes,
            "grown_mib": grown,
        }
    )
)
