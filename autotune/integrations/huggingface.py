"""For ``transformers.Trainer``: a recommendation held against the Trainer's own arguments, and its memory watched.

    trainer = Trainer(..., callbacks=[AutotuneCallback("autotune.json")])

The largest batch of a live Trainer is found by ``autotune.find_max_batch(trainer)``.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from autotune.model import Checkpointing, Compile, Precision
from autotune.recommended.file import read_file
from autotune.report.document import settings_of
from autotune.report.fields import Document
from autotune.runtime.certified import MemoryGuard
from autotune.runtime.readings import read_allocator
from autotune.tuned.training import without
from autotune.tuned.validity import Difference, differences, model_differences, set_allocator, tell
from autotune.workload.source import INSIDE_VARIABLE

__all__ = ["AutotuneCallback"]


class AutotuneCallback(TrainerCallback):  # type: ignore[misc]  # the framework is not there when types are checked
    """Checks ``autotune.json`` as a training begins, and guards its memory while it runs."""

    def __init__(
        self,
        path: str | os.PathLike[str] = "autotune.json",
        *,
        strict: bool = False,
        guard: bool = True,
        missing_ok: bool = False,
    ) -> None:
        """
        Args:
            path: what ``autotune search --output`` wrote.
            strict: raise ``StaleConfigError`` where model, machine, versions or the Trainer's arguments differ from what
                the file was made for; else warn (``StaleConfig``).
            guard: warn (``MemoryWarning``) when the allocator of the device holds more than was certified, or retries.
            missing_ok: where there is no such file, do nothing. Nothing is read, either, while autotune itself makes the
                Trainer in order to search it.

        Raises:
            UsageError: there is no such file, or it is not a recommendation.
            EnvironmentTrouble: it cannot be read.
        """
        self.path = path
        self._strict = strict
        self._guards = guard
        inside = bool(os.environ.get(INSIDE_VARIABLE))
        self.document = None if inside else read_file(Path(path), missing_ok=missing_ok, instead=without(path))
        """The file's content; None = there is none."""
        self.guard: MemoryGuard | None = None
        """While a training runs on a device whose allocator counts: the CPU has none that does."""
        self._device = torch.device("cpu")

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Hold the file against model, machine and arguments.

        Raises:
            StaleConfigError: with ``strict``.
        """
        content, model = self.document, kwargs.get("model")
        if content is None:
            return
        device = torch.device(args.device)
        found = [*set_allocator(content, device), *differences(content, device, self.path)]
        if model is not None:
            found += model_differences(content, model, self.path)
        tell(self.path, [*found, *argument_differences(content, args)], strict=self._strict)
        if self._guards and device.type == "cuda":
            evidence, self._device = content.evidence, device
            self.guard = MemoryGuard(evidence.peak_bytes, evidence.budget_bytes, read_allocator(device).retries)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Look at the memory."""
        if self.guard is not None:
            held = read_allocator(self._device)
            self.guard.look(state.global_step, held.reserved_peak_bytes, held.retries)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The last look."""
        self.on_step_end(args, state, control)
        self.guard = None


def argument_differences(content: Document, args: Any) -> list[Difference]:
    """Where ``TrainingArguments`` train in another way than the file says, or evaluate more than is safe at a time."""
    found = [
        Difference(text=f"{name}: {wanted} in the file, {here} here", cure=f"set {name}={wanted!r}")
        for name, wanted, here in _compared(content, args)
        if wanted != here
    ]
    if args.n_gpu > 1:  # DataParallel: a batch for each
        cure = "show the training one device (CUDA_VISIBLE_DEVICES=0), or start a process for each by torchrun"
        found.append(Difference(text=f"n_gpu: 1 in the file, {args.n_gpu} here, each with a batch", cure=cure))
    largest = content.evaluation.max_batch if content.evaluation is not None else None
    name, here = "per_device_eval_batch_size", args.per_device_eval_batch_size
    if largest is not None and here > largest:
        text = f"{name}: at most {largest} by the file, {here} here"
        found.append(Difference(text=text, cure=f"set {name}={largest} or less"))
    return found


def _compared(content: Document, args: Any) -> Iterator[tuple[str, object, object]]:
    """(argument, value that follows from the file, value it has)."""
    settings = settings_of(content)
    yield "per_device_train_batch_size", content.batch.micro_batch, args.per_device_train_batch_size
    yield "gradient_accumulation_steps", content.batch.accumulate, args.gradient_accumulation_steps
    yield "bf16", settings.precision is Precision.BF16, bool(args.bf16)
    yield "fp16", settings.precision is Precision.FP16, bool(args.fp16)
    yield "torch_compile", settings.compile is not Compile.OFF, bool(args.torch_compile)
    yield "auto_find_batch_size", False, bool(getattr(args, "auto_find_batch_size", False))
    if settings.checkpointing in (Checkpointing.OFF, Checkpointing.OWN):  # the others wrap the model itself
        name = next(n for n in ("activation_checkpointing", "gradient_checkpointing") if hasattr(args, n))
        yield name, settings.checkpointing is Checkpointing.OWN, bool(getattr(args, name))
