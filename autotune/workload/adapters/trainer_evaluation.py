"""Evaluation as a Hugging Face Trainer's ``evaluation_loop`` does it: one step of it, and what it has kept by its end.

The loop keeps predictions and labels of all batches on the device until ``eval_accumulation_steps`` of them are there,
or the data set ends, and each new one is joined to the former ones by a copy. One batch is really predicted; the former
ones are made as empty tensors of their size.
"""

import math
from collections.abc import Iterator
from typing import Any, Self

import torch
from torch import nn

from autotune.workload.adapters.mixed_precision import autocast_inside
from autotune.workload.adapters.trainer_training import Training
from autotune.workload.batch import first_length, map_tensors, tensors, to_device
from autotune.workload.dataset import BatchSource
from autotune.workload.opening import open_data


class Evaluation:
    """Runs a Trainer's ``prediction_step`` on the largest samples of its evaluation data sets."""

    def __init__(self, training: Training, sources: list[BatchSource]) -> None:
        self._training = training
        self._sources = sources

    @classmethod
    def of(cls, training: Training) -> Self | None:
        """The Trainer's evaluation; None where it has no data set for one."""
        trainer = training.trainer
        data = trainer.eval_dataset
        if data is None:
            return None
        loaders = (
            [trainer.get_eval_dataloader(name) for name in data]
            if isinstance(data, dict)
            else [trainer.get_eval_dataloader()]
        )
        return cls(training, [_source(loader) for loader in loaders])

    @property
    def why(self) -> str:
        """What it is recognised by, and what stays on the device."""
        args = self._training.trainer.args
        if self._loss_only:
            return "it has an eval_dataset; without compute_metrics, losses alone are kept"
        if getattr(args, "batch_eval_metrics", False):
            return "it has an eval_dataset; batch_eval_metrics keeps one batch"
        steps = args.eval_accumulation_steps
        kept = f"of {steps} batches (eval_accumulation_steps)" if steps else "of all batches"
        return f"it has an eval_dataset; predictions {kept} are kept on the device"

    @property
    def _loss_only(self) -> bool:
        trainer = self._training.trainer
        return trainer.compute_metrics is None or bool(trainer.args.prediction_loss_only)

    def run(self, model: nn.Module, batch: object) -> None:
        """One step on as many samples as ``batch`` has, of each evaluation data set, with all that is kept by its end."""
        rows = first_length(batch)
        device = next(model.parameters()).device
        self._training.place(device)
        for source in self._sources:
            samples, _ = source.batch(rows)
            self._step(model, device, to_device(samples, device), self._kept(source, rows))

    def _kept(self, source: BatchSource, rows: int) -> int:
        """Batches whose predictions are on the device at once."""
        args = self._training.trainer.args
        if getattr(args, "batch_eval_metrics", False):
            return 1
        batches = math.ceil(source.size / rows) if source.size else None
        limits = [count for count in (args.eval_accumulation_steps, batches) if count]
        return min(limits, default=1)

    def _step(self, model: nn.Module, device: torch.device, inputs: Any, kept: int) -> None:
        trainer = self._training.trainer
        with autocast_inside(model, device):
            losses, logits, labels = trainer.prediction_step(model, inputs, self._loss_only, ignore_keys=None)
        if logits is not None and trainer.preprocess_logits_for_metrics is not None:
            logits = trainer.preprocess_logits_for_metrics(logits, labels)
        held = []  # everything before is alive while the next is joined, as in the loop
        for part in (logits, labels):
            if part is not None and kept > 1:
                former = _grown(part, kept - 1)
                held.append(former)
                if getattr(trainer.args, "eval_do_concat_batches", True):
                    held[-1] = _joined(former, part)
                del former
        del losses, held


def _source(loader: Any) -> BatchSource:
    return open_data(lambda: loader.dataset, loader.collate_fn)


def _grown(part: object, times: int) -> object:
    """Tensors of the same form with so many times the rows, really written to."""
    return map_tensors(
        part, lambda t: t.new_full((times * len(t), *t.shape[1:]), 0) if t.dim() else t.new_full((times,), 0)
    )


def _joined(former: object, part: object) -> list[torch.Tensor]:
    return [torch.cat([old, new if new.dim() else new[None]]) for old, new in _pairs(former, part)]


def _pairs(former: object, part: object) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    return zip(tensors(former), tensors(part), strict=True)
