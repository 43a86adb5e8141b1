"""Activation checkpointing: a block keeps its inputs alone, and runs a second time in the backward pass."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from types import MethodType
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.utils.checkpoint import checkpoint

from autotune.apply.blocks import find_blocks, switch_of, switches
from autotune.apply.unsupported import Unsupported
from autotune.errors import UsageError
from autotune.model import Checkpointing, Compile, Settings

_PLAIN = "_autotune_plain_forward"
"""Attribute of a wrapped block: its own forward."""


def apply(model: nn.Module, settings: Settings) -> None:
    """Let the model checkpoint its activations, in place, by its own switch or block by block.

    Raises:
        Unsupported: the model has no switch, no repeated blocks, or batch norms in them that cannot be kept from moving
            twice in a compiled graph.
        UsageError: its blocks are wrapped already.
    """
    if settings.checkpointing is Checkpointing.OFF:
        return
    if settings.checkpointing is Checkpointing.OWN:
        _switch_on(model)
        return
    names = find_blocks(model)
    if not names:
        raise Unsupported("the model has no repeated blocks, and checkpointing wraps these")
    blocks = [model.get_submodule(name) for name in names]
    if settings.checkpointing is Checkpointing.ALTERNATE:
        blocks = blocks[::2]
    if settings.compile is not Compile.OFF and any(_norms(block) for block in blocks):
        raise Unsupported(
            "batch norms in checkpointed blocks would move their running statistics twice a step in a compiled graph"
        )
    if any(getattr(block.forward, "__func__", None) is forward for block in blocks):
        raise UsageError(
            "the model's blocks are checkpointed already", hint="prepare a model once, before the training loop"
        )
    for block in blocks:
        setattr(block, _PLAIN, block.forward)
        block.forward = MethodType(forward, block)


def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
    """``forward`` of a wrapped block: its own, computed again in the backward pass of a training step.

    A method, so that a deep copy of the model runs the copied block, and under this name, so that one that was pickled
    comes back plain.
    """
    plain: Callable[..., Any] = getattr(self, _PLAIN)
    if not (self.training and torch.is_grad_enabled()):
        return plain(*args, **kwargs)
    run = partial(plain, **kwargs) if kwargs else plain  # arguments of the block may be named like checkpoint's own
    norms = _norms(self)
    if not norms:
        return checkpoint(run, *args, use_reentrant=False)
    return checkpoint(run, *args, use_reentrant=False, context_fn=partial(_contexts, norms))


def _contexts(norms: list[_NormBase]) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """What the first run and the second run are in."""
    return nullcontext(), _still(norms)


@contextmanager
def _still(norms: list[_NormBase]) -> Iterator[None]:
    """Running statistics do not move inside: copies of them do, which nothing else reads.

    The norms must not go without, since what a run keeps for the backward pass is compared with what the first one kept.
    """
    kept = [dict(norm.named_buffers(recurse=False)) for norm in norms]
    for norm, buffers in zip(norms, kept, strict=True):
        for name, buffer in buffers.items():
            setattr(norm, name, buffer.clone())
    try:
        yield
    finally:
        for norm, buffers in zip(norms, kept, strict=True):
            for name, buffer in buffers.items():
                setattr(norm, name, buffer)


def _norms(block: nn.Module) -> list[_NormBase]:
    """Those that keep running statistics, by batch or by sample."""
    return [part for part in block.modules() if isinstance(part, _NormBase) and part.running_mean is not None]


def _switch_on(model: nn.Module) -> None:
    found: list[Any] = list(switches(model))
    if not found:
        raise Unsupported("the model has no switch for activation checkpointing as those of transformers and timm have")
    for module in found:
        try:
            if switch_of(module) == "transformers":
                module.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
            else:
                module.set_grad_checkpointing(True)
        except (ValueError, TypeError, AssertionError, NotImplementedError) as error:
            # Models of both libraries have the switch by inheritance, and some then say that they do not support it.
            raise Unsupported(f"{type(module).__name__} refuses its switch for checkpointing: {error}") from error
