"""One set of settings applied to one device: the object that a training loop talks to."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar, cast

import torch
from torch import nn

from autotune.apply import attention, checkpointing, compiling, formats, optimizers, parallel, precision, refusals
from autotune.apply.blocks import find_blocks
from autotune.apply.splitting import Plan
from autotune.errors import UsageError
from autotune.model import Parallel, Settings

BatchT = TypeVar("BatchT")
ModelT = TypeVar("ModelT", bound=nn.Module)
OptimizerT = TypeVar("OptimizerT", bound=torch.optim.Optimizer)


class Applied:
    """Settings, applied. In a training loop, in this order::

        applied = Applied(settings, device)
        model = applied.prepare(model)
        optimizer = applied.optimizer(torch.optim.AdamW, model.parameters(), lr=3e-4)
        for micro_batches in ...:  # settings.accumulate of them
            applied.zero_grad(optimizer)
            for batch in micro_batches:
                with applied.autocast():
                    loss = ...
                applied.backward(loss)
            applied.step(optimizer)

    ``train_step`` is the inside of the loop. Default settings change nothing. In a training of several ranks, gradients
    are averaged over all of them in the last micro-batch of a step, so that a step sees the micro-batches of all ranks.
    """

    def __init__(self, settings: Settings, device: torch.device) -> None:
        """Sets what holds for the whole process: tf32 and cuDNN's benchmark."""
        self.settings = settings
        self.device = device
        self.scaler = precision.make_scaler(settings, device)
        self._counts_before: tuple[int, int] | None = None
        self._turns: parallel.Turns | None = None
        precision.set_tf32(settings.precision)
        if settings.cudnn_benchmark:
            torch.backends.cudnn.benchmark = True

    @property
    def first_device(self) -> torch.device:
        """Where the model may lie before ``prepare``: the host where it is sharded on its way to the device."""
        return torch.device("cpu") if parallel.shards(self.settings) else self.device

    @property
    def splits(self) -> bool:
        """Whether ``prepare`` needs a plan for tensor parallel."""
        return self.settings.parallel is Parallel.TENSOR and parallel.joins(self.settings)

    def prepare(self, model: ModelT, plan: Plan | None = None) -> ModelT:
        """The same model, moved to the device and changed in place; its parameters and ``state_dict`` keep their names.

        Call it once, before the optimizer is made and before the model is wrapped by other means. Where the settings join
        several ranks (``parallel``), see ``parallelise`` for what comes back: for ``ddp`` and ``zero`` a
        DistributedDataParallel, whose ``module`` is the model.

        Args:
            model: to train.
            plan: for tensor parallel; None = the model's own.

        Raises:
            Unsupported: settings do not apply to this model, or not together.
            UsageError: the model was prepared before, or there are several ranks without a process group.
        """
        settings = self.settings
        precision.check_parameters(model, settings.precision)
        compiling.check(settings)
        joins = parallel.joins(settings)
        model.to(self.first_device)
        formats.apply(model, settings.memory_format)
        checkpointing.apply(model, settings)
        if compiling.is_on(settings):
            # A block's hooks gather its parameters between the compiled parts; they cannot be compiled along.
            parts = [model.get_submodule(name) for name in find_blocks(model)] if parallel.shards(settings) else [model]
            compiling.apply(parts, settings)
            self._counts_before = compiling.counts()
        if joins:
            model = cast(ModelT, parallel.parallelise(model, settings, device=self.device, plan=plan))
            self._turns = parallel.Turns(model, settings)
        return model

    def optimizer(self, cls: type[OptimizerT], params: Iterable[Any], **kwargs: Any) -> OptimizerT:
        """An optimizer of this class in the implementation of the settings.

        Args:
            cls: such as ``torch.optim.AdamW``. Under ``zero`` with several ranks the optimizer is a
                ``ZeroRedundancyOptimizer`` around one of this class.
            params: parameters or groups of them, as the class takes them.
            kwargs: the class's other arguments.

        Raises:
            Unsupported: the class has no such implementation, or not for these parameters.
        """
        with refusals.optimizer_explained(self.settings):
            maker = parallel.optimizer_maker(self.settings)
            return optimizers.make(cls, params, kwargs, self.settings.optimizer, maker)

    def reimplement(self, optimizer: OptimizerT) -> OptimizerT:
        """The same optimizer in the implementation of the settings; itself, untouched, where they name none.

        Call it before the first step. What else refers to the old one (a scheduler) goes on referring to it.

        Raises:
            Unsupported: it cannot be made anew with everything it was given, or has no such implementation.
        """
        with refusals.optimizer_explained(self.settings):
            return optimizers.remake(optimizer, self.settings.optimizer, parallel.optimizer_maker(self.settings))

    @contextmanager
    def autocast(self) -> Iterator[None]:
        """The context in which the forward pass and the loss run.

        Raises:
            Unsupported: an operation inside refused what the settings make of its inputs.
        """
        with ExitStack() as stack:
            stack.enter_context(refusals.forward_explained(self.settings))
            stack.enter_context(precision.autocast(self.settings.precision, self.device))
            stack.enter_context(attention.backend(self.settings.attention))
            yield

    def zero_grad(self, optimizer: torch.optim.Optimizer) -> None:
        """Clear the gradients, once before the micro-batches of a step."""
        optimizer.zero_grad(set_to_none=self.settings.set_to_none)
        if self._turns is not None:
            self._turns.begin()

    def backward(self, loss: torch.Tensor) -> None:
        """Back-propagate one micro-batch; the loss is divided by the number of accumulated micro-batches.

        Its forward pass must have run after ``zero_grad`` or the ``backward`` before it: ranks exchange gradients in the last.
        """
        if self.settings.accumulate > 1:
            loss = loss / self.settings.accumulate
        scaled = loss if self.scaler is None else self.scaler.scale(loss)
        # Blocks computed again must choose the attention they chose at first; the choice is the whole process's.
        with attention.backend(self.settings.attention):
            torch.autograd.backward(scaled)
        if self._turns is not None:
            self._turns.next()

    def step(self, optimizer: torch.optim.Optimizer, *others: torch.optim.Optimizer) -> bool:
        """Take the optimizer step, and that of others whose gradients came from the same backward passes: the scale changes
        once they all did. Under fp16 the scaler may refuse it. Returns whether all were let through.

        A refused step is told by the scale: it only ever falls when a gradient was not finite (GradScaler.update).
        Counting calls of the optimizer would not do: fused ones are called and skip by themselves.

        Raises:
            Unsupported: the implementation of the settings does not take these parameters.
        """
        with refusals.optimizer_explained(self.settings):
            if self.scaler is None:
                for each in (optimizer, *others):
                    each.step()
                return True
            before = self.scaler.get_scale()
            for each in (optimizer, *others):
                self.scaler.step(each)
        self.scaler.update()
        return bool(self.scaler.get_scale() >= before)

    def train_step(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        loss: Callable[[Any, BatchT], torch.Tensor],
        batches: Iterable[BatchT],
    ) -> torch.Tensor:
        """One optimizer step over exactly ``settings.accumulate`` micro-batches.

        Args:
            model: prepared.
            optimizer: of its parameters.
            loss: ``loss(model, batch)``, a mean over the samples of the batch.
            batches: the micro-batches, all of one size, on the device; taken one after the other.

        Returns:
            The mean of the losses, without a gradient.

        Raises:
            UsageError: there are more or fewer batches; no step was taken.
        """
        asked = self.settings.accumulate
        total: torch.Tensor | None = None
        taken = 0
        self.zero_grad(optimizer)
        for batch in batches:
            taken += 1
            if taken > asked:
                break
            with self.autocast():
                value = loss(model, batch)
            self.backward(value)
            kept = self.keep(value)
            total = kept if total is None else total + kept
        if total is None or taken != asked:
            given = f"more than {asked}" if taken > asked else str(taken)
            raise UsageError(
                f"a step of these settings takes {asked} micro-batches and was given {given}",
                hint="give it itertools.islice(loader_iterator, settings.accumulate)",
            )
        self.step(optimizer)
        return total / asked

    def states(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """What a checkpoint keeps: the ``state_dict`` of both. All ranks must call it; under ``zero`` only rank 0 gets the
        optimizer's, the others None."""
        mine = parallel.gather_state(optimizer)
        return {"model": model.state_dict(), "optimizer": optimizer.state_dict() if mine else None}

    def keep(self, loss: torch.Tensor) -> torch.Tensor:
        """The loss without its gradient, safe to hold while the next micro-batch runs.

        A CUDA graph writes the next result where the last one was, so a compiled model's loss must be copied.
        """
        detached = loss.detach()
        return detached.clone() if compiling.is_on(self.settings) else detached

    def compile_counts(self) -> tuple[int, int] | None:
        """Graphs that ``torch.compile`` made since ``prepare``, and places where it could not go on.

        None where nothing is compiled, or this PyTorch does not count.
        """
        now = compiling.counts() if self._counts_before is not None else None
        if now is None or self._counts_before is None:
            return None
        return now[0] - self._counts_before[0], now[1] - self._counts_before[1]
