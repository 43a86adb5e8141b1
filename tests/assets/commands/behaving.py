"""How training scripts behave: behaving.py MODE BATCH. None of them knows of autotune."""

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

WIDTH = 1 << 16
"""Of the activations, 256 KiB a sample each."""

mode, batch = sys.argv[1], int(sys.argv[2])
rest = sys.argv[3:]


def make() -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Sequential(nn.Linear(8, WIDTH), nn.Tanh(), nn.Sigmoid(), nn.Tanh(), nn.Linear(WIDTH, 1))
    return model, torch.optim.SGD(model.parameters(), lr=1e-3)


def step(model: nn.Module, optimizer: torch.optim.Optimizer, inputs: torch.Tensor) -> None:
    optimizer.zero_grad()
    model(inputs).mean().backward()
    optimizer.step()


def batches(number: int = 50) -> Iterator[torch.Tensor]:
    return (torch.randn(batch, 8) for _ in range(number))


def train(times: int = 50) -> None:
    model, optimizer = make()
    for inputs in batches(times):
        step(model, optimizer, inputs)


def planted() -> None:
    """Out of memory above the size that is planted; leaves a file in the folder it is given."""
    limit, folder = int(rest[0]), Path(rest[1])
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    (folder / "begun").write_text("1")
    for inputs in batches():
        if batch > limit:
            raise RuntimeError(
                "[enforce fail at alloc_cpu.cpp:1] . DefaultCPUAllocator: can't allocate memory: planted"
            )
        step(model, optimizer, inputs)


def holding() -> None:
    """Waits in its second step while the folder says so, with a process of its own beside it."""
    folder = Path(rest[0])
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for number, inputs in enumerate(batches()):
        step(model, optimizer, inputs)
        if number == 1 and (folder / f"hold-{batch}").exists():
            context = multiprocessing.get_context("fork")
            context.Process(target=time.sleep, args=(600,), daemon=True).start()
            (folder / f"held-{os.getpid()}").touch()
            while (folder / f"hold-{batch}").exists():
                time.sleep(0.01)


def gives_up() -> None:
    try:
        train()
    except RuntimeError:
        print("too large")
        sys.exit(0)


def skips() -> None:
    model, optimizer = make()
    for inputs in batches():
        try:
            step(model, optimizer, inputs)
        except RuntimeError:
            print("skipped")


def halves() -> None:
    size = batch
    model, optimizer = make()
    while True:
        try:
            for (inputs,) in DataLoader(TensorDataset(torch.randn(2000, 8)), batch_size=size):
                step(model, optimizer, inputs)
            return
        except RuntimeError:
            size //= 2


def two_optimizers() -> None:
    pairs = [make(), make()]
    for inputs in batches():
        for model, optimizer in pairs:
            step(model, optimizer, inputs)


def forked() -> None:
    process = multiprocessing.get_context("fork").Process(target=train)
    process.start()
    process.join()
    sys.exit(process.exitcode)


def rank() -> None:
    """Started by torchrun; the rank that is named dies."""
    torch.distributed.init_process_group("gloo")
    model, optimizer = nn.parallel.DistributedDataParallel(nn.Linear(8, 1)), None
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for inputs in batches():
        if rest and torch.distributed.get_rank() == int(rest[0]):
            raise RuntimeError(
                "[enforce fail at alloc_cpu.cpp:1] . DefaultCPUAllocator: can't allocate memory: of a rank"
            )
        step(model, optimizer, inputs)


def compiled() -> None:
    """The hook makes neither a graph break nor a second graph."""
    from torch._dynamo.utils import counters

    model, optimizer = make()
    fast = torch.compile(model, backend="eager", fullgraph=True)
    for number, inputs in enumerate(batches()):
        step(fast, optimizer, inputs)
        if number == 1:
            torch._dynamo.config.error_on_recompile = True
        assert counters["stats"]["unique_graphs"] == 1


def hangs() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # saves its work and goes
    train(1)
    time.sleep(600)


def fails() -> None:
    train(1)
    {}["what nobody has"]


def exits() -> None:
    train(1)
    sys.exit(3)


def environment() -> None:
    """Of a user who has set up more than a script."""
    import sitecustomize
    import users_own

    assert (sitecustomize.NAME, users_own.NAME) == ("the user's", "the user's"), sitecustomize
    train()


globals()[mode]()
