"""The hook's way into torch, right after a process of the user's command has imported it."""

import atexit
import os
import sys
from collections.abc import Callable
from functools import wraps
from types import TracebackType
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.data import dataloader

from autotune.probe.command.orders import HookOrder
from autotune.probe.command.watch import Watch
from autotune.probe.wire import Channel


def attach(path: str) -> None:
    """Watch this process from here on, as the order in ``path`` says.

    Raises:
        OSError: the order is not there, or nobody listens.
    """
    order = HookOrder.read(path)
    pipe = os.open(order.pipe, os.O_WRONLY | os.O_NONBLOCK)
    os.set_blocking(pipe, True)
    watch = Watch(order, Channel(pipe, order.token, writer=f"{os.getpid()}-"))
    sys.excepthook = _telling(watch, sys.excepthook)
    atexit.register(watch.at_exit)
    register_optimizer_step_pre_hook(lambda optimizer, *_: watch.before_step(optimizer))
    register_optimizer_step_post_hook(lambda optimizer, *_: watch.after_step(optimizer))
    torch.autograd.backward = _around(watch, torch.autograd.backward)
    optimizer = torch.optim.Optimizer
    optimizer.__init__ = _making(watch, optimizer.__init__)  # type: ignore[method-assign]
    torch.jit.script = _scripting(watch, torch.jit.script)
    batches = dataloader._BaseDataLoaderIter
    batches.__next__ = _fetching(watch, batches.__next__)  # type: ignore[method-assign, assignment]
    os.register_at_fork(after_in_child=watch.forked)
    watch.begin()


def _around(watch: Watch, backward: Callable[..., None]) -> Callable[..., None]:
    """``torch.autograd.backward``, which ``Tensor.backward`` calls, too; checkpointing may call it within itself."""

    @wraps(backward)
    def watched(*args: Any, **kwargs: Any) -> None:
        with watch.backward(args[0] if args else kwargs.get("tensors")):
            backward(*args, **kwargs)

    return watched


def _making(watch: Watch, make: Callable[..., None]) -> Callable[..., None]:
    """The constructor of an optimizer."""

    @wraps(make)
    def watched(optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> None:
        make(optimizer, *args, **kwargs)
        watch.made(optimizer)

    return watched


def _scripting(watch: Watch, script: Callable[..., Any]) -> Callable[..., Any]:
    """``torch.jit.script``; names are looked up in the frame that calls it, which is one further up now."""

    @wraps(script)
    def watched(obj: Any, optimize: None = None, _frames_up: int = 0, **kwargs: Any) -> Any:
        watch.scripted(obj)
        return script(obj, optimize, _frames_up + 1, **kwargs)

    return watched


def _fetching(watch: Watch, fetch: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """``next()`` of PyTorch's data loader."""

    @wraps(fetch)
    def watched(batches: Any) -> Any:
        watch.before_batch()
        try:
            batch = fetch(batches)
        except StopIteration:
            watch.after_batch(batches, None)
            raise
        except (RuntimeError, MemoryError) as error:
            watch.note(error)
            raise
        watch.after_batch(batches, batch)
        return batch

    return watched


def _telling(watch: Watch, show: Callable[..., object]) -> Callable[..., object]:
    """``sys.excepthook`` that tells the tool first."""

    @wraps(show)
    def told(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> object:
        watch.failed(error)
        return show(kind, error, trace)

    return told
