"""``autotune.load("autotune.json")`` and what it returns: the recommended settings, applied to the user's own training.

The file is data: it is checked field by field and never evaluated, and no variable is taken from it but the
allocator's. All that is done to the training is done by ``autotune.apply``, the very code of the probes.
"""

import os
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

import torch

from autotune.apply import Applied
from autotune.apply.splitting import Plan
from autotune.errors import UsageError
from autotune.model import Settings
from autotune.recommended.file import read_file
from autotune.report.document import settings_of
from autotune.report.fields import Document
from autotune.tuned.validity import Difference, differences, model_differences, set_allocator, tell
from autotune.workload.source import INSIDE_VARIABLE

BatchT = TypeVar("BatchT")
ModelT = TypeVar("ModelT", bound=torch.nn.Module)
OptimizerT = TypeVar("OptimizerT", bound=torch.optim.Optimizer)


def load(
    path: str | os.PathLike[str] = "autotune.json",
    *,
    strict: bool = False,
    missing_ok: bool = False,
    device: str | torch.device | None = None,
) -> "Tuned":
    """Read a recommendation for a training in this process, and see whether it holds here.

    Call it before anything uses the device, since the allocator reads its configuration when that starts: where the
    file asks for one and nobody has set any, it is set here. Switches of the whole process (tf32, cuDNN) are set as well.

    While autotune itself loads the script in order to search it, nothing is read and nothing changed: what is searched
    is the training as it is without the file.

    Args:
        path: what ``autotune search --output`` wrote.
        strict: raise where machine, PyTorch, allocator, number of devices or model differ from what the file was made
            for; else warn (``StaleConfig``) and go on.
        missing_ok: where there is no such file, train as if there were no autotune (``found`` is false).
        device: to train on; None = the kind of device the file was made for, if there is one. In a training of several
            processes pass each its own.

    Raises:
        UsageError: there is no such file, or it is not a recommendation; ``detail`` lists every bad field.
        EnvironmentTrouble: the file cannot be read, or there is no such device.
        StaleConfigError: with ``strict``; says what differs.
        autotune.apply.Unsupported: the settings cannot be applied on this device.
    """
    if os.environ.get(INSIDE_VARIABLE):
        return Tuned(None, path, _device(device, "cpu"), strict=strict)
    content = read_file(Path(path), missing_ok=missing_ok, instead=without(path))
    if content is None:
        return Tuned(None, path, _device(device, "cuda"), strict=strict)
    chosen = _device(device, content.machine.device)
    found = (*set_allocator(content, chosen), *differences(content, chosen, path))
    tell(path, found, strict=strict)
    return Tuned(content, path, chosen, strict=strict, stale=found)


class Tuned:
    """Settings applied to one device for one training; ``load`` makes it."""

    def __init__(
        self,
        document: Document | None,
        path: str | os.PathLike[str],
        device: torch.device,
        *,
        strict: bool = False,
        stale: tuple[Difference, ...] = (),
    ) -> None:
        self.document = document
        """The file's content; None = there was none."""
        self.path = path
        self.device = device
        self.stale = stale
        """What was not as the file says when it was loaded."""
        self.settings = Settings() if document is None else settings_of(document)
        """What the training runs with; without a file, settings that change nothing of it."""
        self._strict = strict
        self._applied = Applied(self.settings, device)

    def __repr__(self) -> str:
        if self.document is None:
            return f"Tuned(no {self.path}, {self.device})"
        return f"Tuned({self.path}: batch {self.micro_batch}, accumulate {self.accumulate}, {self.device})"

    @property
    def found(self) -> bool:
        """Whether there was a file."""
        return self.document is not None

    @property
    def micro_batch(self) -> int | None:
        """Samples in one batch on one device; None without a file."""
        return None if self.document is None else self.document.batch.micro_batch

    def batch_size(self, default: int) -> int:
        """``micro_batch``, or without a file the training's own size."""
        return default if self.micro_batch is None else self.micro_batch

    @property
    def eval_batch(self) -> int | None:
        """Samples that fit in one batch of evaluation; None without a file, or where that is not known or none fits."""
        evaluation = None if self.document is None else self.document.evaluation
        return None if evaluation is None else evaluation.max_batch

    @property
    def accumulate(self) -> int:
        """Micro-batches per optimizer step."""
        return self.settings.accumulate

    @property
    def scaler(self) -> torch.amp.GradScaler | None:
        """The gradient scaler (fp16): its state belongs in a checkpoint, and gradients must be unscaled to be clipped."""
        return self._applied.scaler

    @property
    def samples_per_second(self) -> float | None:
        """Throughput of one device as the search measured it, loading left out; None where nothing was."""
        return None if self.document is None else self.document.evidence.samples_per_second

    @property
    def certified_bytes(self) -> int | None:
        """Device-wide peak of one device's training as the certifying probe measured it; None where nothing was."""
        return None if self.document is None else self.document.evidence.peak_bytes

    def prepare(self, model: ModelT, plan: Plan | None = None) -> ModelT:
        """The model on the device as the settings want it: the same object, with the same keys in its ``state_dict``.

        In a training of several ranks (``torchrun``), call ``torch.distributed.init_process_group`` before. Where the
        settings say how they train together, the model is joined to that of the other ranks: for ``ddp`` and ``zero`` a
        DistributedDataParallel around it comes back, for ``fsdp`` and ``tensor`` the model itself, its parameters being
        ``DTensor`` shards. Where they say nothing (``parallel`` is ``default``), joining ranks is the training's own work.

        Args:
            model: to train; for ``fsdp`` it may be larger than the device, and should not be there yet.
            plan: for ``tensor``: names of modules to styles, as ``parallelize_module`` takes them; None = that of the
                model (``_tp_plan`` of transformers).

        Raises:
            StaleConfigError: with ``strict``, where it is another model than the file was made for, as far as the
                number of its parameters tells. Otherwise that is a warning.
            autotune.apply.Unsupported: the settings cannot be applied to this model.
            UsageError: the process is one of several ranks, and has not joined the others yet.
        """
        if self.document is not None:
            tell(self.path, model_differences(self.document, model, self.path), strict=self._strict)
        return self._applied.prepare(model, plan)

    def optimizer(self, cls: type[OptimizerT], params: Iterable[Any], **options: Any) -> OptimizerT:
        """``cls(params, **options)`` in the implementation that the settings name; for ``zero`` with several ranks a
        ``ZeroRedundancyOptimizer`` around it.

        Raises:
            autotune.apply.Unsupported: this class does not have it.
        """
        return self._applied.optimizer(cls, params, **options)

    def autocast(self) -> AbstractContextManager[object]:
        """The context of the forward pass and the loss."""
        return self._applied.autocast()

    def zero_grad(self, optimizer: torch.optim.Optimizer) -> None:
        """Clear the gradients: once in an optimizer step, before its first micro-batch."""
        self._applied.zero_grad(optimizer)

    def backward(self, loss: torch.Tensor) -> None:
        """Back-propagate one micro-batch; the loss is divided by ``accumulate`` and scaled where need be."""
        self._applied.backward(loss)

    def step(self, optimizer: torch.optim.Optimizer, *others: torch.optim.Optimizer) -> bool:
        """Take the optimizer step, with that of all others the same losses are for; False where the gradient scaler (fp16)
        refused one."""
        return self._applied.step(optimizer, *others)

    def train_step(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        loss: Callable[[Any, BatchT], torch.Tensor],
        batches: Iterable[BatchT],
    ) -> torch.Tensor:
        """A whole optimizer step: gradients cleared, ``accumulate`` micro-batches, the optimizer.

        Args:
            model: as ``prepare`` returned it.
            optimizer: of its parameters.
            loss: ``loss(model, batch)``, a mean over the samples of the batch.
            batches: exactly ``accumulate`` of them, of one size, on the device; taken one after the other.

        Returns:
            The mean of their losses, without a gradient.

        Raises:
            UsageError: there are more or fewer batches; no step was taken.
        """
        return self._applied.train_step(model, optimizer, loss, batches)

    def states(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """``{"model": …, "optimizer": …}`` for a checkpoint: both ``state_dict``. All ranks must call it; under ``zero`` the
        optimizer's is None on all but rank 0."""
        return self._applied.states(model, optimizer)

    def loader_options(self, **own: Any) -> dict[str, Any]:
        """Arguments for a ``DataLoader``: the training's ``own`` ones, but for what the settings have to say of them."""
        found = dict(own)
        if self.settings.loader_workers is not None:
            found["num_workers"] = self.settings.loader_workers
        if self.settings.pin_memory:
            found["pin_memory"] = True
        return found


def without(path: str | os.PathLike[str]) -> str:
    """What else a training can do where there is no file, for a hint."""
    return f"; or train without: autotune.load({os.fspath(path)!r}, missing_ok=True)"


def _device(asked: str | torch.device | None, kind: str) -> torch.device:
    """What was asked for, else this kind if it is here.

    Raises:
        UsageError: what was asked for is no device.
    """
    if asked is None:
        return torch.device(kind if kind != "cuda" or torch.cuda.is_available() else "cpu")
    try:
        return torch.device(asked)
    except RuntimeError as error:
        raise UsageError(f"{asked!r} is no device: {error}", hint="give cpu, cuda or cuda:1") from error
