"""What a LightningModule trains, part by part: its own steps and optimizer, called as Lightning's automatic loop does."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from autotune.errors import WorkloadError
from autotune.model import Recognised
from autotune.workload.adapters.lightning_data import is_inherited
from autotune.workload.adapters.lightning_stand_in import attach
from autotune.workload.batch import describe, first_length, to_device
from autotune.workload.dataset import BatchSource
from autotune.workload.opening import open_data
from autotune.workload.parts import accepts
from autotune.workload.seen import kind_of

_AT_START = ("on_fit_start", "on_train_start", "on_train_epoch_start")
_LEFT_OUT = ("backward", "optimizer_step", "optimizer_zero_grad", "configure_gradient_clipping")
"""Hooks that a module may write, and for which autotune does the usual thing."""


class Training:
    """One LightningModule, and others like it where more than one is asked for."""

    def __init__(self, module: Any, remake: Callable[[], object] | None, data: Any, size_name: str) -> None:
        """
        Args:
            module: made by the user's code.
            remake: makes another one; None = there is only this one.
            data: the LightningDataModule, whose batch hooks come first; None = none.
            size_name: attribute that holds the batch size.
        """
        self._first: Any = module
        self._remake = remake
        self._data = data
        self._module: Any = None
        """The one made last."""
        self._begun: Any = None
        """The one whose training has begun."""
        self.evaluation_data: Any = None
        """A loader to evaluate from; None = training batches."""
        self._evaluation_source: BatchSource | None = None
        attach(module, data)
        self.evaluates = not is_inherited(module, "validation_step")
        written = [hook for hook in _LEFT_OUT if not is_inherited(module, hook)]
        self.notes: tuple[str, ...] = tuple(
            f"{type(module).__name__}.{hook} is not called: probes do what Lightning does without it"
            for hook in written
        )

    def check(self, name: str) -> None:
        """See that a probe can do what Lightning's loop does.

        Raises:
            WorkloadError: it optimizes by hand, or a step is missing.
        """
        if not getattr(self._first, "automatic_optimization", True):
            raise WorkloadError(
                f"{name} optimizes by hand (automatic_optimization = False): forward, backward and the optimizer steps are"
                " all inside of its training_step, and a probe has to run them one by one",
                hint="write make_model(), loss(model, batch) and make_optimizer(params) for its largest network",
            )
        for method in ("training_step", "configure_optimizers"):
            if is_inherited(self._first, method):
                raise WorkloadError(f"{name} has no {method}", hint=f"write {method}() in {name}")

    def told(self, name: str) -> dict[str, Recognised]:
        """Lines for ``autotune inspect``."""
        lines = {
            "loss": Recognised(what="train step", found=f"{name}.training_step", why=f"{name} is a LightningModule"),
            "make_optimizer": Recognised(
                what="optimizer", found=f"{name}.configure_optimizers", why="the optimizer it returns, without schedule"
            ),
        }
        if self.evaluates:
            lines["evaluate"] = Recognised(
                what="evaluate", found=f"{name}.validation_step", why="it is written in the module"
            )
        return lines

    def make_model(self) -> nn.Module:
        """The module, and another one each time after that, if there can be any."""
        again = self._module is not None and self._remake is not None
        module: Any = self._remake() if again and self._remake is not None else self._first
        if module is not self._module:
            attach(module, self._data)
            if again and not is_inherited(module, "setup"):
                module.setup("fit")
            if not is_inherited(module, "configure_model"):
                module.configure_model()
        self._module = module
        made: nn.Module = module
        return made

    def make_optimizer(self, params: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """The optimizer that ``configure_optimizers`` returns in any of its forms; schedules are let go of.

        Raises:
            WorkloadError: there is none, or several.
        """
        returned = self._module.configure_optimizers()
        found = _optimizers(returned)
        if len(found) != 1:
            raise WorkloadError(
                f"configure_optimizers() returned {describe(returned) if found else kind_of(returned)}: "
                f"{len(found) or 'no'} optimizers, and Lightning's automatic loop takes exactly one",
                hint="return one optimizer, alone or with its schedule",
            )
        (optimizer,) = found
        vars(optimizer).pop("step", None)  # schedules wrap the step, to count; the class has it still
        self._module.trainer.optimizers[:] = [optimizer]
        return optimizer

    def loss(self, model: nn.Module, batch: object) -> object:
        """What ``training_step`` returns as its loss.

        Raises:
            WorkloadError: it returns none.
        """
        module: Any = model
        if self._begun is not model:
            self._begun = model
            for hook in _AT_START:
                _call(module, hook)
        batch = self._transferred(module, batch)
        if not is_inherited(module, "on_train_batch_start"):
            module.on_train_batch_start(batch, 0)
        output = _step(module.training_step, batch)
        loss = output.get("loss") if isinstance(output, dict) else output
        if loss is None:
            raise WorkloadError(
                f"training_step returned {'no loss' if output is not None else 'None'}, so that the batch is skipped",
                hint="return the loss, or a dict with it under 'loss'",
            )
        return loss

    def evaluate(self, model: nn.Module, batch: object) -> None:
        """One ``validation_step`` on as many samples as the batch has, of the validation loader's data if there is one."""
        module: Any = model
        device = next(model.parameters()).device
        trainer = module.trainer
        if self.evaluation_data is not None and hasattr(self.evaluation_data, "dataset"):
            rows = first_length(batch)
            if self._evaluation_source is None:
                loader = self.evaluation_data
                self._evaluation_source = open_data(lambda: loader.dataset, self.collated(loader.collate_fn))
            samples, _ = self._evaluation_source.batch(rows)
            batch = to_device(samples, device)
        batch = self._transferred(module, batch)
        trainer.training, trainer.validating = False, True
        with torch.no_grad():
            for hook in ("on_validation_start", "on_validation_epoch_start"):
                _call(module, hook)
            output = _step(module.validation_step, batch)
            for hook in ("on_validation_epoch_end", "on_validation_end"):
                _call(module, hook)
            del output
        trainer.training, trainer.validating = True, False

    def collated(self, collate: Callable[[Any], object]) -> Callable[[list[object]], object]:
        """A collator followed by ``on_before_batch_transfer``, which works on the CPU."""
        return lambda samples: self._before_transfer(collate(samples))

    def batched(self, make: Callable[[int], object]) -> Callable[[int], object]:
        """A batch maker followed by the same."""
        return lambda batch_size: self._before_transfer(make(batch_size))

    def _before_transfer(self, batch: object) -> object:
        owner = self._hook_owner("on_before_batch_transfer", self._module or self._first)
        return batch if owner is None else owner.on_before_batch_transfer(batch, 0)

    def _transferred(self, module: Any, batch: object) -> object:
        """``on_after_batch_transfer``: what is done to a batch on the device."""
        owner = self._hook_owner("on_after_batch_transfer", module)
        return batch if owner is None else owner.on_after_batch_transfer(batch, 0)

    def _hook_owner(self, hook: str, module: Any) -> Any:
        """Who has written a hook: the data module before the module, as in Lightning; None if nobody has."""
        owners = [owner for owner in (self._data, module) if owner is not None]
        return next((owner for owner in owners if not is_inherited(owner, hook)), None)


def _call(module: Any, hook: str) -> None:
    if not is_inherited(module, hook):
        getattr(module, hook)()


def _step(step: Callable[..., Any], batch: object) -> Any:
    """``training_step(batch, batch_idx)`` or ``training_step(batch)``."""
    return step(batch, 0) if accepts(step, batch, 0) else step(batch)


def _optimizers(returned: Any) -> list[torch.optim.Optimizer]:
    """All optimizers in what ``configure_optimizers`` returns: alone, in lists, with schedules, in dicts."""
    if isinstance(returned, torch.optim.Optimizer):
        return [returned]
    if isinstance(returned, dict):
        return _optimizers(returned.get("optimizer"))
    if isinstance(returned, list | tuple):
        return [found for part in returned for found in _optimizers(part)]
    return []
