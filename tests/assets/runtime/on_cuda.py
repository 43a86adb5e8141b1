"""Guarded trainings on a CUDA device with a capped allocator. Prints one JSON object, a field for each training.

python on_cuda.py FOLDER
"""

import copy
import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

import autotune
from autotune.errors import MemoryStop, MemoryWarning
from autotune.runtime import load_checkpoint
from autotune.units import GIB, MIB

DEVICE = torch.device("cuda", 0)
CAP = 2 * GIB
WIDTH = 1024
FOLDER = Path(sys.argv[1])


def make_model(dropout: float = 0.0) -> nn.Sequential:
    """Every Tanh keeps 4 KiB a sample for the backward pass."""
    torch.manual_seed(0)
    layers = [layer for _ in range(16) for layer in (nn.Tanh(), nn.Dropout(dropout))]
    return nn.Sequential(nn.Linear(16, WIDTH), *layers, nn.Linear(WIDTH, 1)).to(DEVICE)


def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    return F.mse_loss(model(batch), batch[:, :1])


def make_batch(samples: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(samples, 16, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def cap(bytes_allowed: int | None) -> None:
    """Hold PyTorch's allocator to so much."""
    torch.cuda.empty_cache()
    total = torch.cuda.mem_get_info(DEVICE)[1]
    torch.cuda.set_per_process_memory_fraction(1.0 if bytes_allowed is None else bytes_allowed / total, DEVICE)


def degrade() -> dict[str, Any]:
    """Two accumulated micro-batches, the second too large for the cap; gradients against those without one."""
    small, large = make_batch(4096, 1), make_batch(36_000, 2)  # which keep 2.7 GiB, masks of the dropout included
    alone = make_model()
    torch.autograd.backward((loss(alone, small) + loss(alone, large)) / 2)
    wanted = [parameter.grad.cpu() for parameter in alone.parameters() if parameter.grad is not None]
    del alone
    cap(CAP)
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with autotune.guard(model, optimizer, accumulate=2, log=FOLDER / "degrade.jsonl", least_seconds=0) as guard:
        for batch in (small, large):
            guard.backward(loss, batch)
        found = [parameter.grad.cpu() for parameter in model.parameters() if parameter.grad is not None]
        optimizer.step()
        guard.after_step()
        held = torch.cuda.memory_allocated(DEVICE)
        optimizer.zero_grad()
        guard.train_step(loss, [small, large])
    cap(None)
    off = max(float((one - other).norm() / other.norm()) for one, other in zip(found, wanted, strict=True))
    return {"off": off, "held_bytes": held, **guard.summary().as_fields()}


def waits() -> dict[str, Any]:
    """Whether a guarded step waits for the device: PyTorch raises where it does."""
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters())
    guard = autotune.guard(model, optimizer, every=1, least_seconds=0, log=FOLDER / "waits.jsonl")
    batch = make_batch(256)
    guard.train_step(loss, [batch])
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(20):
            guard.train_step(loss, [batch])
    finally:
        torch.cuda.set_sync_debug_mode("default")
    guard.close()
    return {"steps": guard.step, "waited": False}


def saved() -> dict[str, Any]:
    """At a limit that is passed a checkpoint is written; the training goes on from it bit for bit."""
    path = FOLDER / "emergency.pt"

    def made() -> tuple[nn.Sequential, torch.optim.Optimizer]:
        model = make_model(dropout=0.1)
        return model, torch.optim.AdamW(model.parameters(), lr=1e-3)

    torch.use_deterministic_algorithms(True)
    batches = [make_batch(512, seed) for seed in range(6)]
    model, optimizer = made()
    torch.manual_seed(7)
    whole = autotune.guard(model, optimizer)
    for batch in batches:
        whole.train_step(loss, [batch])
    wanted = copy.deepcopy(model.state_dict())

    model, optimizer = made()
    torch.manual_seed(7)
    limit = torch.cuda.mem_get_info(DEVICE)[1] - torch.cuda.mem_get_info(DEVICE)[0] + 512 * MIB
    guard = autotune.guard(model, optimizer, checkpoint=path, limit=limit, on_limit="stop", every=1, least_seconds=0)
    stopped, ballast = "", None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MemoryWarning)
        try:
            for number, batch in enumerate(batches):
                if number == 2:
                    ballast = torch.empty(GIB, dtype=torch.uint8, device=DEVICE)
                guard.train_step(loss, [batch])
        except MemoryStop as stop:
            stopped = stop.message
    held = torch.cuda.memory_allocated(DEVICE)
    torch.cuda.reset_peak_memory_stats(DEVICE)
    guard.save(FOLDER / "again.pt")
    took = torch.cuda.max_memory_allocated(DEVICE) - held
    del ballast
    model, optimizer = made()
    step = load_checkpoint(path).restore(model, optimizer)
    guard = autotune.guard(model, optimizer, start_step=step)
    for batch in batches[step:]:
        guard.train_step(loss, [batch])
    torch.use_deterministic_algorithms(False)
    same = all(torch.equal(value, wanted[name]) for name, value in model.state_dict().items())
    return {"stopped": stopped, "step": step, "same": same, "took_bytes": took}


def leak() -> dict[str, Any]:
    """Losses and activations of 4 MiB kept from every step."""
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters())
    kept: list[object] = []

    def keeping(model: nn.Sequential, batch: torch.Tensor) -> torch.Tensor:
        hidden = model[:2](batch)
        value = F.mse_loss(model[2:](hidden), batch[:, :1])
        kept.append((value, hidden))
        return value

    guard = autotune.guard(model, optimizer, every=1, least_seconds=0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for number in range(80):
            guard.train_step(keeping, [make_batch(1024, number)])
    told = [str(warning.message) for warning in caught if warning.category is MemoryWarning]
    return {"told": told, **guard.summary().as_fields()}


def half_precision() -> dict[str, Any]:
    """With autocast and a gradient scaler; what three steps in parts change of the parameters, against three whole ones."""

    def under_autocast(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cuda", torch.float16):
            output = model(batch)
        return F.mse_loss(output.float(), batch[:, :1])

    def trained(wrap: Callable[[Any, torch.Tensor], torch.Tensor]) -> tuple[list[torch.Tensor], int]:
        model = make_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        scaler = torch.amp.GradScaler("cuda", init_scale=1024.0)
        guard = autotune.guard(model, optimizer, scaler=scaler)
        for number in range(3):
            guard.train_step(wrap, [make_batch(64, number)])
        split = guard.summary().micro_batches_split
        pairs = zip(model.parameters(), make_model().parameters(), strict=True)
        return [(parameter - before).detach().cpu() for parameter, before in pairs], split

    def failing(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        if len(batch) > 16:
            more = 2 * torch.cuda.get_device_properties(DEVICE).total_memory
            torch.empty(more, dtype=torch.uint8, device=DEVICE)  # the allocator's own words
        return under_autocast(model, batch)

    (whole, _), (parts, split) = trained(under_autocast), trained(failing)
    off = max(float((one - other).norm() / other.norm()) for one, other in zip(parts, whole, strict=True))
    return {"off": off, "split": split}


found = {each.__name__: each() for each in (degrade, waits, saved, leak, half_precision)}
print(json.dumps(found))
