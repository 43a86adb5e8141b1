"""One step of a training, watched: which operator ran when, what autograd kept for which module, what belongs to whom."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode

from autotune.apply.blocks import find_blocks
from autotune.diagnose.composition.blocks import Sighting, Window, pattern
from autotune.diagnose.composition.records import Record, address_of
from autotune.diagnose.examiner import Training
from autotune.model import MemoryKind, Phase
from autotune.workload.batch import tensors


def known_tensors(training: Training) -> Iterator[tuple[MemoryKind, str, torch.Tensor]]:
    """What a training holds by name now: kind, name, tensor. Tied ones and views come under the first of their names."""
    for name, parameter in training.model.named_parameters():
        yield MemoryKind.WEIGHTS, name, parameter
        if parameter.grad is not None:
            yield MemoryKind.GRADIENTS, name, parameter.grad
    for name, buffer in training.model.named_buffers():
        yield MemoryKind.BUFFERS, name, buffer
    for state in training.optimizer.state.values():
        for tensor in tensors(state):
            yield MemoryKind.OPTIMIZER, "", tensor
    for tensor in tensors(training.batch):
        yield MemoryKind.BATCH, "", tensor


class Watch:
    """Sightings and operators of one step; nothing of it changes what the step calculates."""

    def __init__(self, training: Training, record: Record) -> None:
        self.sightings: list[Sighting] = []
        self.windows: list[Window] = []
        self._training = training
        self._record = record
        self._inside: list[str] = []
        """Names of the modules whose forward pass is running, the innermost last."""
        self._blocks = find_blocks(training.model)

    def look(self) -> None:
        """Note where everything is that the training holds by name."""
        for kind, name, tensor in known_tensors(self._training):
            self._record.saw([tensor])
            position = self._record.position()
            self.sightings.append(Sighting(position, address_of(tensor), kind, name))

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch what runs inside. Not for compiled models: hooks would be compiled along, or keep the graph from running."""
        with ExitStack() as stack:
            for name, module in self._training.model.named_modules():
                before, after = self._hooks(pattern(name, self._blocks))
                stack.callback(module.register_forward_pre_hook(before).remove)
                stack.callback(module.register_forward_hook(after, always_call=True).remove)
            stack.enter_context(saved_tensors_hooks(self._saved, _as_it_is))
            stack.enter_context(_Operators(self))
            yield

    def _hooks(self, name: str) -> tuple[Callable[..., None], Callable[..., None]]:
        def before(module: nn.Module, args: Any) -> None:
            self._inside.append(name)

        def after(module: nn.Module, args: Any, output: Any) -> None:
            self._inside.pop()

        return before, after

    def _saved(self, tensor: torch.Tensor) -> torch.Tensor:
        """Autograd keeps this. Detached: an output that its own node kept would be a reference cycle."""
        name = self._inside[-1] if self._inside else ""
        self.sightings.append(Sighting(self._record.position(), address_of(tensor), MemoryKind.ACTIVATIONS, name))
        return tensor.detach()

    def takes(self, arguments: Sequence[object]) -> int:
        """An operator begins; its position. What it takes is there, whoever made it (NumPy, say)."""
        self._record.saw(tensors(list(arguments)))
        return self._record.position()

    def ran(self, operator: str, first: int, returned: Sequence[torch.Tensor]) -> None:
        """An operator ended that began at position ``first``."""
        self._record.saw(returned)
        last = self._record.position()
        if last > first:
            outputs = frozenset(address_of(tensor) for tensor in returned)
            phase = self._training.phase()
            self.windows.append(Window(first, last, operator, Phase(phase) if phase else None, outputs))


def _as_it_is(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def is_compiled(model: nn.Module) -> bool:
    """Whether the user compiled the model, or a part of it, on their own. By name: the class is of a module that takes a
    second to import."""
    return any(
        type(module).__name__ == "OptimizedModule" or getattr(module, "_compiled_call_impl", None) is not None
        for module in model.modules()
    )


class _Operators(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees every operator below autograd, those of the backward pass and of the optimizer as well."""

    def __init__(self, watch: Watch) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._watch = watch

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        first = self._watch.takes([*args, *(kwargs or {}).values()])
        returned = func(*args, **(kwargs or {}))
        self._watch.ran(str(func.name()).partition(".")[0], first, tensors(returned))
        return returned
