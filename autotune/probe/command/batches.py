"""What a command trains on, as far as it can be seen: batches of PyTorch's data loader, else what its models are called with."""

import gc
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from autotune.workload.batch import batch_bytes, describe, observed_batch
from autotune.workload.dataset import length


class Batches:
    """Sizes of the batches that were trained on, and where they came from."""

    def __init__(self, asked: int) -> None:
        self._asked = asked
        self._fetched: object = None
        self._looked_at: set[int] = set()
        """Ids of models."""
        self._from_loader = False
        self.words = ""
        """Shapes of a batch that was trained on."""
        self.observed: int | None = None
        """Samples in the largest batch that was trained on; None where nothing was seen."""
        self.bytes = 0
        """Of the last one."""
        self.data_set_size: int | None = None
        """Of the data set trained on, where it says; of the last that gave no batch, where nothing was trained on."""
        self.taken = 0
        """Batches since ``taken`` was last set to 0."""
        self._size: int | None = None

    def fetched(self, batches: Any, batch: object | None) -> None:
        """The loader gave a batch, or ended (None)."""
        size = length(getattr(batches, "_dataset", None))
        if batch is None:
            self.data_set_size = size if self.observed is None else self.data_set_size
        elif torch.is_grad_enabled():  # else it is for evaluation
            self._from_loader, self._fetched, self._size = True, batch, size
            self.taken += 1

    def called(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A model was called with this."""
        if torch.is_grad_enabled() and not self._from_loader:
            self._fetched = (args, kwargs)
            self.taken += 1

    def trained(self) -> None:
        """The last batch was trained on."""
        batch, self._fetched = self._fetched, None
        if batch is None:
            return
        seen = observed_batch(batch, self._asked)
        if seen is not None and (self.observed is None or seen > self.observed):
            self.observed = seen
        self.bytes = batch_bytes(batch)
        self.words = self.words or describe(batch)
        if self._from_loader:
            self.data_set_size = self._size

    def look_at_models(self, parameters: Iterable[nn.Parameter]) -> None:
        """Where no data loader is used, see what the models with these parameters are called with from now on."""
        if self._from_loader:
            return
        for model in _models_of(parameters):
            # a hook inside of the graph would be compiled along
            if model._compiled_call_impl is None and id(model) not in self._looked_at:
                self._looked_at.add(id(model))
                model.register_forward_pre_hook(_Spy(self), with_kwargs=True)


class _Spy:
    """Sees what a model is called with. A copy of the model, or one read from a file, is not looked at."""

    def __init__(self, batches: Batches) -> None:
        self._batches = batches

    def __call__(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not torch.compiler.is_compiling():
            self._batches.called(args, kwargs)

    def __reduce__(self) -> tuple[Callable[[], object], tuple[()]]:
        return _no_spy, ()


def _no_spy() -> Callable[..., None]:
    return _see_nothing


def _see_nothing(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Stands in the place of a spy."""


def _models_of(parameters: Iterable[nn.Parameter]) -> list[nn.Module]:
    """The outermost modules that hold any of the parameters."""
    wanted = {id(one) for one in parameters}
    # by type, not isinstance(): lazy objects of other libraries come alive when asked for their class
    modules: list[nn.Module] = [one for one in gc.get_objects() if issubclass(type(one), nn.Module)]
    holders = [one for one in modules if any(id(parameter) in wanted for parameter in one.parameters())]
    inner = {id(part) for one in holders for part in one.modules() if part is not one}
    return [one for one in holders if id(one) not in inner]
