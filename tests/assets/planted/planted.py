"""A workload that goes wrong on purpose: `planted.py KIND [LIMIT] [TEXT]`. LIMIT is the largest batch that works.

With `planted.py @FILE` each forked child reads its arguments, a JSON list, from the file: what the process that loaded
this file is good for changes with it. That serves kinds which show in model, batch, loss or optimizer.
"""

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import time

import torch
from torch import nn

DEFAULTS = ["fine", "0", "CUDA out of memory. Tried to allocate 20.00 MiB"]
WIDTH = 4


def understood(arguments: list[str]) -> tuple[str, int, str]:
    """KIND, LIMIT and TEXT."""
    kind, limit, text = [*arguments, *DEFAULTS[len(arguments) :]]
    return kind, int(limit), text


KIND, LIMIT, TEXT = understood(sys.argv[1:])


def read_arguments() -> None:
    """Those of this process."""
    global KIND, LIMIT, TEXT
    with open(sys.argv[1].removeprefix("@")) as file:
        KIND, LIMIT, TEXT = understood(json.load(file))


if KIND.startswith("@"):
    os.register_at_fork(after_in_child=read_arguments)

calls = 0


class TwoArguments(RuntimeError):
    """An exception with two arguments, as wrappers around CUDA libraries raise them."""

    def __init__(self, text: str) -> None:
        super().__init__(text, 2)


def out_of_memory(kind: str) -> BaseException:
    """The out-of-memory of one backend."""
    if kind == "type":
        return torch.OutOfMemoryError(TEXT)
    if kind == "memory_error":
        return MemoryError("Unable to allocate 8.00 GiB for an array")
    if kind == "two_arguments":
        return TwoArguments(TEXT)
    if kind == "cause":
        error = ValueError("layer 3 failed")
        error.__cause__ = torch.OutOfMemoryError(TEXT)
        return error
    if kind == "group":
        return ExceptionGroup("two branches failed", [ValueError("x"), torch.OutOfMemoryError(TEXT)])
    return RuntimeError(TEXT)


class Raise(torch.autograd.Function):
    """Identity whose backward runs out of memory."""

    @staticmethod
    def forward(ctx, x):  # type: ignore[no-untyped-def]
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        raise torch.OutOfMemoryError(TEXT)


def native_crash(kind: str) -> None:
    """Die or hang in one of the ways native code does."""
    if kind == "segfault":
        ctypes.string_at(0)
    if kind == "abort":
        os.abort()
    if kind == "sigkill":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "exit0":
        os._exit(0)
    if kind == "sysexit":
        sys.exit(0)
    if kind in ("hang", "hang_hard"):
        if kind == "hang_hard":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            time.sleep(0.05)


def grandchildren() -> None:
    """Two processes that want to live on: one in this group, one daemon in a session of its own."""
    marker = os.environ["PLANTED_MARKER"]
    code = f"import time; time.sleep(300)  # {marker}"
    subprocess.Popen([sys.executable, "-c", code])
    subprocess.Popen([sys.executable, "-c", code], start_new_session=True)


def garbage() -> None:
    """Write into every descriptor there is."""
    for fd in range(1, 256):
        with contextlib.suppress(OSError):
            os.write(fd, b'{"kind": "answer", "measurement": {}}\n\x00\xff garbage' * 20)


class Model(nn.Module):
    """A linear layer with a trap in forward."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, 1)
        self.norm = nn.BatchNorm1d(WIDTH) if KIND == "batch_norm" else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        global calls
        calls += 1
        size, above = len(x), len(x) > LIMIT
        if KIND.startswith("forward:") and above:
            raise out_of_memory(KIND.removeprefix("forward:"))
        if KIND == "step2" and above and calls == 2:
            raise torch.OutOfMemoryError(TEXT)
        if KIND.startswith("native:") and above:
            native_crash(KIND.removeprefix("native:"))
        if KIND == "even":
            assert size % 2 == 0, f"batch {size} is odd"
            if above:
                raise torch.OutOfMemoryError(TEXT)
        if KIND == "eights":
            if size % 8:
                raise AssertionError(f"batch {size} is not a multiple of 8")
            if above:
                raise torch.OutOfMemoryError(TEXT)
        if KIND == "index" and size >= 8:
            raise IndexError("index 1000 is out of range for an embedding of 1000 rows")
        if KIND == "always":
            raise RuntimeError(TEXT)
        if KIND == "one_size" and size == LIMIT:
            raise RuntimeError(TEXT)
        if KIND == "grandchildren" and calls == 1:
            grandchildren()
        if KIND == "garbage":
            garbage()
        if KIND == "two_limits" and above:
            raise torch.OutOfMemoryError(TEXT)
        if KIND == "batch_norm" and above:
            raise torch.OutOfMemoryError(TEXT)
        out = self.linear(self.norm(x))
        if KIND == "backward" and above:
            out = Raise.apply(out)
        if KIND == "nan" and above:
            out = out * float("nan")
        return out


def make_model() -> nn.Module:
    if KIND == "build":
        raise ValueError("hidden size 10 is not divisible by 3 heads")
    if KIND == "heavy":
        return nn.Sequential(nn.Linear(WIDTH, 1), nn.EmbeddingBag(LIMIT, WIDTH))
    return Model()


def make_batch(batch_size: int) -> torch.Tensor:
    if KIND == "rows":
        batch_size = min(batch_size, LIMIT)
    if KIND == "drop_last":
        batch_size = batch_size if batch_size <= LIMIT else 0
        if batch_size == 0:
            raise StopIteration("the loader yields nothing")
    return torch.ones(batch_size, WIDTH)


def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    if KIND == "noop" and calls >= LIMIT:
        return next(model.parameters()).sum() * 0
    return model(batch).pow(2).mean()


class Trap(torch.optim.SGD):
    """Runs out of memory in its step above the limit, as lazily made state does."""

    def step(self, closure=None):  # type: ignore[no-untyped-def, override]
        if Trap.seen > LIMIT:
            raise torch.OutOfMemoryError(TEXT)
        return super().step(closure)

    seen = 0


def make_optimizer(params: list[nn.Parameter]) -> torch.optim.Optimizer:
    if KIND != "optimizer":
        return torch.optim.SGD(params, lr=0.01)

    def note(module: nn.Module, args: tuple[object, ...]) -> None:
        if args and isinstance(args[0], torch.Tensor):
            Trap.seen = len(args[0])

    nn.modules.module.register_module_forward_pre_hook(note)
    return Trap(params, lr=0.01)


if KIND == "evaluate":

    def evaluate(model: nn.Module, batch: torch.Tensor) -> None:
        if len(batch) > LIMIT:
            raise torch.OutOfMemoryError(TEXT)
        model(batch)


if KIND == "hang_at_import":
    while True:
        time.sleep(0.05)
if KIND == "exit_at_import":
    sys.exit(3)
if KIND == "die_at_import":
    os._exit(9)
if KIND == "killed_at_import":
    os.kill(os.getpid(), signal.SIGKILL)
if KIND == "threads_at_import":
    import threading

    threading.Thread(target=time.sleep, args=(300,), daemon=True).start()
if KIND == "prints":
    print('{"kind": "answer", "measurement": {"steps_executed": 99}}')
    print("\x00 noise", file=sys.stderr)
