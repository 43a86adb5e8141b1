"""What a command trains on, as far as it can be seen: batches of PyTorch's data loader, else what its models are called with."""

import gc
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from autotune.workload.batch import Extents, batch_bytes, describe, extents, grown_batch, observed_batch
from autotune.workload.dataset import length


class Batches:
    """Sizes of the batches that were trained on, and where they came from."""

    def __init__(
        self,
        asked: int,
        known: tuple[int, Extents] | None = None,
        begun: Callable[[nn.Module], None] = lambda model: None,
        failed: Callable[[BaseException], None] = lambda error: None,
    ) -> None:
        """
        Args:
            asked: samples that the command was told to take.
            known: another size that it was told before, and the extents of a batch that it trained on then.
            begun: called with a model that is about to be called.
            failed: called with what a model raised, whether or not somebody catches it.
        """
        self._asked = asked
        self._known = known
        self.begun = begun
        self.failed = failed
        self._fetched: object = None
        self._looked_at: dict[int, list[RemovableHandle]] = {}
        """By the id of a model: what looks at it."""
        self._known_parameters: set[int] = set()
        """Ids of those of the models that are looked at."""
        self._from_loader = False
        self.extents: list[tuple[int, ...]] = []
        """Of the first batch that was trained on."""
        self.words = ""
        """Shapes of a batch that was trained on."""
        self.observed: int | None = None
        """Samples in the largest batch that was trained on; None where nothing was seen."""
        self.bytes = 0
        """Of the last one."""
        self.data_set_size: int | None = None
        """Of the data set trained on, where it says; of the last that gave no batch, where nothing was trained on."""
        self._fetches = 0
        self._calls: Counter[int] = Counter()
        """Of each model, by its id."""
        self.in_step = False
        """Whether an optimizer steps: a model called then, by a closure, is called with the same batch again."""
        self._size: int | None = None

    def fetched(self, batches: Any, batch: object | None) -> None:
        """The loader gave a batch, or ended (None)."""
        size = length(getattr(batches, "_dataset", None))
        if batch is None:
            self.data_set_size = size if self.observed is None else self.data_set_size
        elif torch.is_grad_enabled():  # else it is for evaluation
            self._from_loader, self._fetched, self._size = True, batch, size
            self._fetches += 1

    @property
    def untrained(self) -> bool:
        """Whether the loader's last batch has not been trained on."""
        return self._from_loader and self._fetched is not None

    def called(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A model was called with this."""
        if torch.is_grad_enabled() and not self._from_loader:
            self._fetched = (args, kwargs)
            self._calls[id(model)] += not self.in_step

    def take(self) -> int:
        """Batches since it was last asked: that the loader gave, or that a single model was called with."""
        taken = self._fetches or max(self._calls.values(), default=0)
        self._fetches = 0
        self._calls.clear()
        return taken

    def trained(self) -> None:
        """The last batch was trained on."""
        batch, self._fetched = self._fetched, None
        if batch is None:
            return
        seen = self._samples(batch)
        self.extents = self.extents or extents(batch)
        if seen is not None and (self.observed is None or seen > self.observed):
            self.observed = seen
        self.bytes = batch_bytes(batch)
        self.words = self.words or describe(batch)
        if self._from_loader:
            self.data_set_size = self._size

    def _samples(self, batch: object) -> int | None:
        """As ``observed_batch``; but a batch that is as it was when another size was told does not follow what is told."""
        if self._known is None or self._known[0] == self._asked:
            return observed_batch(batch, self._asked)
        here = extents(batch)
        told, there = self._known
        if [list(each) for each in here] == [list(each) for each in there]:
            return next((each[0] for each in here[1:] if each), None)
        return grown_batch(here, self._asked, there, told) or observed_batch(batch, self._asked)

    @property
    def too_few(self) -> bool:
        """Whether a loader gave nothing at all, of a data set smaller than the batch."""
        return self.observed is None and self.data_set_size is not None and self.data_set_size < self._asked

    def look_at_models(self, parameters: Iterable[nn.Parameter]) -> None:
        """See what the models with these parameters are called with from now on, and whether they raise."""
        for model in _models_of(parameters):
            # a hook inside of the graph would be compiled along, and a scripted module bears none
            if (
                model._compiled_call_impl is None
                and not isinstance(model, torch.jit.ScriptModule)
                and id(model) not in self._looked_at
            ):
                spy = _Spy(self)
                self._looked_at[id(model)] = [
                    model.register_forward_pre_hook(spy, with_kwargs=True),
                    model.register_forward_hook(spy.after, always_call=True),
                ]
            self._known_parameters |= {id(one) for one in model.parameters()}

    def knows(self, parameters: Iterable[nn.Parameter]) -> bool:
        """Whether all of these belong to models that were looked for; finding models takes its time."""
        return all(id(one) in self._known_parameters for one in parameters)

    def look_away(self, model: object) -> None:
        """Do not look at a model, or at parts of it, any longer."""
        for part in model.modules() if isinstance(model, nn.Module) else ():
            for handle in self._looked_at.pop(id(part), []):
                handle.remove()


class _Spy:
    """Sees what a model is called with. A copy of the model, or one read from a file, is not looked at."""

    def __init__(self, batches: Batches) -> None:
        self._batches = batches

    def __call__(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not torch.compiler.is_compiling() and not torch.jit.is_tracing():  # type: ignore[no-untyped-call, attr-defined]
            self._batches.begun(model)
            self._batches.called(model, args, kwargs)

    def after(self, model: nn.Module, args: tuple[Any, ...], output: object) -> None:
        """The model has returned, or raised."""
        if not torch.compiler.is_compiling() and (error := sys.exception()) is not None:
            self._batches.failed(error)

    def __reduce__(self) -> tuple[Callable[[], "_Blind"], tuple[()]]:
        return _no_spy, ()


class _Blind:
    """Stands in the place of a spy."""

    def __call__(self, *call: object) -> None:
        pass

    after = __call__


def _no_spy() -> _Blind:
    return _Blind()


def _models_of(parameters: Iterable[nn.Parameter]) -> list[nn.Module]:
    """The outermost modules that hold any of the parameters."""
    wanted = {id(one) for one in parameters}
    # by type, not isinstance(): lazy objects of other libraries come alive when asked for their class
    modules: list[nn.Module] = [one for one in gc.get_objects() if issubclass(type(one), nn.Module)]
    holders = [one for one in modules if any(id(parameter) in wanted for parameter in one.parameters())]
    inner = {id(part) for one in holders for part in one.modules() if part is not one}
    return [one for one in holders if id(one) not in inner]
