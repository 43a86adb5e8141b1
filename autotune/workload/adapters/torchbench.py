"""Model classes in torchbench's form: ``Model(test, device, batch_size, extra_args)`` with ``get_module()`` and ``train()``.

``train()`` is one whole step. A probe runs it up to its ``backward()``: the tensor that is called on is the loss.
"""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import torch
from torch import nn

from autotune.errors import WorkloadError
from autotune.model import Recognised
from autotune.workload.adapters.adapter import Adapter, Subject
from autotune.workload.assemble import Found, assemble
from autotune.workload.batch import first_length, map_tensors, tensors

_ARGUMENTS = {"test", "device", "batch_size"}


def _takes(thing: object) -> bool:
    if not isinstance(thing, type) or issubclass(thing, nn.Module):
        return False
    methods = all(callable(getattr(thing, name, None)) for name in ("get_module", "train"))
    return methods and set(inspect.signature(thing).parameters) >= _ARGUMENTS


class _Bench:
    """Objects of such a class: one that holds the model, and one for each batch size, whose tensors are the batch."""

    def __init__(self, cls: Any) -> None:
        self._cls = cls
        self._holder: Any = None
        self._by_size: dict[int, Any] = {}

    def _make(self, batch_size: int) -> Any:
        return self._cls(test="train", device="cpu", batch_size=batch_size)

    def make_model(self) -> nn.Module:
        """The model of an object made anew."""
        self._holder = self._make(1)
        model: nn.Module = self._holder.get_module()[0]
        return model

    def make_batch(self, batch_size: int) -> dict[str, object]:
        """Copies of the tensors that an object of this size has made for itself, by attribute."""
        if batch_size not in self._by_size:
            made = self._make(batch_size)
            made.get_module()
            self._by_size[batch_size] = {
                name: value
                for name, value in vars(made).items()
                if not isinstance(value, nn.Module | torch.optim.Optimizer) and tensors(value)
            }
        known: dict[str, object] = self._by_size[batch_size]
        return {name: map_tensors(value, lambda t: t.detach().clone()) for name, value in known.items()}

    def make_optimizer(self, params: Any) -> torch.optim.Optimizer:
        """The object's own, or another of its class and options for these parameters.

        Raises:
            WorkloadError: it has none.
        """
        own = getattr(self._holder, "optimizer", None) or getattr(self._holder, "opt", None)
        if not isinstance(own, torch.optim.Optimizer):
            raise WorkloadError(
                f"{self._cls.__name__} has no optimizer: neither self.optimizer nor self.opt",
                hint="make it in __init__ for test='train'",
            )
        own.state.clear()
        return own

    def loss(self, model: nn.Module, batch: dict[str, object]) -> torch.Tensor:
        """The loss of ``train()`` on this batch.

        Raises:
            WorkloadError: it never calls ``backward()`` of a tensor.
        """
        holder = self._holder
        for name, value in batch.items():
            setattr(holder, name, value)
        holder.device = str(next(model.parameters()).device)
        holder.batch_size = first_length(batch)
        with _up_to_backward() as caught:
            holder.train()
        if not caught:
            raise WorkloadError(
                f"{self._cls.__name__}.train() never calls backward() of a loss",
                hint="write make_model(), make_batch(batch_size) and loss(model, batch) instead",
            )
        return caught.pop()


class _Reached(BaseException):
    """``train()`` has come to its backward pass."""


@contextmanager
def _up_to_backward() -> Iterator[list[torch.Tensor]]:
    """Have the first ``backward()`` inside end the block; its tensor is in the list."""
    caught: list[torch.Tensor] = []
    plain = torch.Tensor.backward

    def reached(loss: torch.Tensor, *args: object, **kwargs: object) -> NoReturn:
        caught.append(loss)
        raise _Reached

    torch.Tensor.backward = reached  # type: ignore[method-assign, assignment]
    try:
        yield caught
    except _Reached:
        pass
    finally:
        torch.Tensor.backward = plain  # type: ignore[method-assign]


def _adapt(subject: Subject) -> Found:
    cls: Any = subject.thing
    bench = _Bench(cls)
    name = subject.name
    members: dict[str, object] = {
        "make_model": bench.make_model,
        "make_batch": bench.make_batch,
        "make_optimizer": bench.make_optimizer,
        "loss": bench.loss,
    }
    told = {
        "make_batch": Recognised(
            what="batch", found=f"the tensors of {name}('train', 'cpu', batch_size)", why="it makes its own inputs"
        ),
        "loss": Recognised(what="train step", found=f"{name}.train() up to backward()", why="it is one whole step"),
        "make_optimizer": Recognised(what="optimizer", found=f"{name}.optimizer", why="made by the object itself"),
    }
    model = Recognised(what="model", found=f"{name}('train', 'cpu', 1).get_module()", why=subject.why)
    return assemble(members, subject.target, model=model, why=f"a method of {name}", told=told)


ADAPTER = Adapter(what="torchbench model classes", brought=lambda: True, takes=_takes, adapt=_adapt)
