"""A workload that tells who loads it and who makes its model: `starting.py [KIND]`, into PLANTED_FOLDER/told.

Its losses depend on every random state there is. KIND: what goes wrong, and where.
"""

import atexit
import gc
import importlib
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

KIND = sys.argv[1] if len(sys.argv) > 1 else ""
FOLDER = Path(os.environ["PLANTED_FOLDER"])
LOADED_BY = os.getpid()


def tell(what: str) -> None:
    """One line; appended at once, since several processes tell."""
    with (FOLDER / "told").open("a") as file:
        file.write(f"{what}\n")


def in_copy_of_zygote() -> bool:
    """Whether this is the process that makes the model ahead: its parent leads its process group."""
    return os.getpgrp() == os.getppid()


def go_wrong_ahead(kind: str) -> None:
    if kind == "raise":
        raise ValueError("planted")
    if kind == "exit":
        sys.exit(0)
    if kind == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "hang":
        while True:
            time.sleep(0.05)
    if kind == "thread":
        threading.Thread(target=time.sleep, args=(300,), daemon=True).start()
    if kind == "pool":
        torch.set_num_threads(2)
        torch.ones(512, 512) @ torch.ones(512, 512)
    if kind == "cuda":
        try:
            torch.cuda.current_device()
        except (RuntimeError, AssertionError):
            tell("went another way")


class Ballasted(nn.Linear):
    """100 MiB that are not trained."""

    def __init__(self) -> None:
        super().__init__(4, 1)
        self.register_buffer("ballast", torch.zeros(100 << 18))


def make_model() -> nn.Module:
    tell("copy makes" if in_copy_of_zygote() else "child makes")
    if KIND == "build_hang":
        while True:
            time.sleep(0.05)
    if KIND == "late" and in_copy_of_zygote():
        go_wrong_ahead("hang")
    if KIND == "build_slowly":
        time.sleep(4)
    if KIND.startswith("ahead:") and in_copy_of_zygote():
        go_wrong_ahead(KIND.removeprefix("ahead:"))
    if KIND == "seed":
        torch.manual_seed(1234)
    if KIND == "large":
        return Ballasted()
    width = random.choice([7, 11, 13]) + int(np.random.randint(3))
    with torch.device("meta" if KIND == "meta" else "cpu"):
        return nn.Sequential(nn.Linear(4, width), nn.Dropout(0.5), nn.Linear(width, 1))


def make_batch(batch_size: int) -> torch.Tensor:
    if KIND == "dynamo":
        tell(f"imported: {'torch._dynamo' in sys.modules}")
        tell(f"frozen: {gc.get_freeze_count() > 100_000}")
    return torch.rand(batch_size, 4) + random.random() + float(np.random.rand())


def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    if KIND == "late":
        go_wrong_ahead("hang")
    if KIND == "program":
        os.system(f"exec ls /proc/self/fd >> {FOLDER / 'told'}")
    return model(batch).pow(2).mean()


def make_optimizer(params: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(params, lr=0.01)


if KIND == "pool_at_import":
    torch.set_num_threads(2)
    torch.ones(512, 512) @ torch.ones(512, 512)
if KIND.startswith("fork:"):
    multiply = torch.mm

    def multiply_or_fail(*args: torch.Tensor) -> torch.Tensor:
        if os.getpid() == LOADED_BY:
            return multiply(*args)
        if KIND == "fork:raise":
            raise RuntimeError("planted")
        os.abort()

    torch.mm = multiply_or_fail  # type: ignore[assignment]
if KIND == "late":
    importlib.import_module("torch._dynamo")  # or bringing it in ahead would take the time
if KIND in ("program", "no_fork"):
    atexit.register(tell, "exit handler")
if KIND == "no_fork":
    os.register_at_fork(after_in_child=lambda: os._exit(7))
tell(f"loaded, imported: {'torch._dynamo' in sys.modules}")
tell(f"loaded, frozen: {gc.get_freeze_count() > 100_000}")
if KIND == "import_hang":
    while True:
        time.sleep(0.05)
