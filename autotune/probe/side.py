"""One side of a comparison: a model under one set of settings, and the few seeded steps it trains."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import torch
from torch import nn

from autotune.apply import Applied, Unsupported
from autotune.apply.ranks import fill, unwrapped, whole
from autotune.errors import WorkloadError
from autotune.model import Phase, Settings
from autotune.probe import buffers, gradients
from autotune.probe.buffers import Buffers
from autotune.probe.group import Group
from autotune.probe.measure import make_optimizer, place
from autotune.probe.pieces import fresh
from autotune.probe.recorder import Recorder
from autotune.probe.settling import MOST_STEPS
from autotune.probe.worker import set_seed
from autotune.workload.task import Workload


class Start:
    """Weights and buffers as both sides begin with them, on the CPU."""

    def __init__(self, model: nn.Module) -> None:
        self._weights = {
            name: whole(weight.detach()).to("cpu", copy=True) for name, weight in unwrapped(model).named_parameters()
        }
        self.buffers = buffers.keep(model)

    def put_into(self, model: nn.Module) -> None:
        """Let the model begin there.

        Raises:
            Unsupported: it is another model.
        """
        weights = dict(unwrapped(model).named_parameters())
        if {name: one.shape for name, one in weights.items()} != {
            name: one.shape for name, one in self._weights.items()
        }:
            raise Unsupported("make_model() makes another model each time, so that settings cannot be compared")
        for name, weight in weights.items():
            fill(weight, self._weights[name])
        buffers.put_back(model, self.buffers)


_STRIDE = 1000
"""Between the seeds of two steps; above any number of micro-batches."""

SeenT = TypeVar("SeenT")


@dataclass(slots=True)
class Run(Generic[SeenT]):
    """What was seen of the steps."""

    first: SeenT | None = None
    """Of the gradient of the first step; None if it never was finite."""
    losses: list[float | None] = field(default_factory=list)
    """One a step, the mean over its micro-batches; None, and no further step, where loss or gradient is not finite."""
    buffers: Buffers = field(default_factory=dict)
    """After the first step."""
    taken: int = 0
    skipped: int = 0
    """Steps that the gradient scaler refused, on the way to those that were taken or to none."""


class Side:
    """One model under one set of settings."""

    def __init__(
        self,
        settings: Settings,
        workload: Workload,
        model: nn.Module,
        device: torch.device,
        recorder: Recorder,
        seed: int,
        group: Group,
    ) -> None:
        """``group``: the ranks that train together; each has a side of its own.

        Raises:
            Unsupported: the settings cannot be applied to this model or its optimizer.
        """
        self._applied = Applied(settings, device)
        self._workload = workload
        self._recorder = recorder
        self._seed = seed
        self._group = group
        with recorder.during(Phase.BUILD):
            plan = workload.plan() if self._applied.splits else None
            self.model = self._applied.prepare(place(model, self._applied.first_device), plan)
            self.model.train()
            self._optimizer = make_optimizer(workload, self.model, self._applied)

    @property
    def scale(self) -> float:
        """What the gradients have to be divided by."""
        scaler = self._applied.scaler
        return 1.0 if scaler is None else float(scaler.get_scale())

    def forget_gradients(self) -> None:
        """As before the first step, whatever ``zero_grad`` would leave."""
        for parameter in self.model.parameters():
            parameter.grad = None

    def train(self, batches: Sequence[Sequence[object]], look: Callable[[], SeenT]) -> Run[SeenT]:
        """Train one step on each set of micro-batches, until one gives nothing finite.

        Under fp16 a step is repeated while the gradient scaler refuses it, on the same samples and from the same
        buffers, so that no sample is left out and the weights are those of the reference.

        Args:
            batches: the micro-batches of each step.
            look: at the gradient of the first step, called when it is there, before the weights change.
        """
        run: Run[SeenT] = Run()
        for number, micro_batches in enumerate(batches, 1):
            loss = self._finite_pass(number, micro_batches, run)
            if loss is None:
                break
            run.losses.append(loss)
            if number == 1:
                run.first = look()
                run.buffers = buffers.keep(self.model)
            if all(parameter.grad is None for parameter in self.model.parameters()):
                break  # a gradient scaler has nothing to step with
            self._step(number)
            run.taken += 1
        return run

    def _finite_pass(self, number: int, micro_batches: Sequence[object], run: Run[SeenT]) -> float | None:
        """Loss of a pass that leaves finite gradients in every rank; None if there is none."""
        before = buffers.keep(self.model) if self._applied.scaler is not None else {}
        while True:
            loss = self.pass_over(number, micro_batches)
            overflows = self._group.any(not math.isfinite(loss))  # else only some ranks would put gradients together
            if not overflows and gradients.is_finite(self.model):
                return loss
            # A scaler refuses the step, and then scales less, unless it is of parameters that are not the optimizer's.
            if overflows or self._applied.scaler is None or self._step(number):
                run.losses.append(None)
                return None
            run.skipped += 1
            if run.skipped >= MOST_STEPS:
                return None
            buffers.put_back(self.model, before)

    def _step(self, number: int) -> bool:
        with self._recorder.during(Phase.OPTIMIZER, number):
            return self._applied.step(self._optimizer)

    def pass_over(self, number: int, micro_batches: Sequence[object], seed: int = 0) -> float:
        """Clear the gradients, and go forward and backward over the micro-batches; the mean of their losses.

        ``seed`` is added to the one that makes both sides draw the same random numbers in the same step.
        """
        recorder, applied = self._recorder, self._applied
        applied.zero_grad(self._optimizer)
        total = 0.0
        for index, micro_batch in enumerate(micro_batches):
            with recorder.during(Phase.DATA, number):
                batch = fresh(micro_batch, applied.device)
            set_seed(self._seed + seed + _STRIDE * number + index)
            with recorder.during(Phase.FORWARD, number), applied.autocast():
                loss = self._workload.loss(self.model, batch)
            total += float(loss.detach())
            with recorder.during(Phase.BACKWARD, number):
                applied.backward(loss)
        return total / len(micro_batches)

    def disturb(self, rounding: float) -> None:
        """Change each weight at random by up to this share of it."""
        chance = torch.Generator().manual_seed(self._seed)
        with torch.no_grad():
            for parameter in self.model.parameters():
                if parameter.is_floating_point() or parameter.is_complex():  # frozen ones may be quantized
                    shares = torch.rand(parameter.shape, generator=chance).mul_(2).sub_(1).mul_(rounding).add_(1)
                    fill(parameter, whole(parameter.detach()) * shares.to(parameter.device))

    def has_loss(self, micro_batch: object) -> bool:
        """Whether there is a loss at all, where asking for its gradient is not the trouble."""
        try:
            with torch.no_grad(), self._applied.autocast():
                self._workload.loss(self.model, fresh(micro_batch, self._applied.device))
        except WorkloadError:
            return False
        return True
