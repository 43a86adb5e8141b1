"""For Lightning: ``Tuner``, in place of Lightning's own, with probes in processes of their own.

    from autotune.integrations.lightning import Tuner
    batch_size = Tuner(trainer).scale_batch_size(model, datamodule=data)

Works with ``lightning`` and ``pytorch_lightning``, whichever the objects are of; it imports neither.
"""

import copy
from typing import Any

from autotune.api import MaxBatch, find_max_batch
from autotune.errors import UsageError
from autotune.workload.adapters.kinds import LIGHTNING_DATA, LIGHTNING_MODULE, is_a
from autotune.workload.adapters.lightning_data import set_size, size_holders
from autotune.workload.adapters.lightning_pair import Pair
from autotune.workload.seen import kind_of

__all__ = ["Tuner"]

_PRECISIONS = {
    "32-true": "default",
    "32": "default",
    "bf16-mixed": "bf16",
    "bf16": "bf16",
    "16-mixed": "fp16",
    "16": "fp16",
}
"""Lightning's names, also older ones; ``-true`` formats change the parameters, which autotune leaves alone."""


class Tuner:
    """Finds the batch size of a training by a Lightning ``Trainer``: its device, precision and accumulation."""

    def __init__(self, trainer: Any, **options: Any) -> None:
        """
        Args:
            trainer: the ``Trainer`` that will train; only looked at.
            options: of ``autotune.find_max_batch``: ``memory_limit``, ``multiple_of``, ``time_budget_s``, ``storage`` …
        """
        self._trainer = trainer
        self._options = options
        self.evidence: MaxBatch | None = None
        """What the last search found, with all its probes."""

    def scale_batch_size(
        self,
        model: Any,
        train_dataloaders: Any = None,
        val_dataloaders: Any = None,
        dataloaders: Any = None,
        datamodule: Any = None,
        method: str = "fit",
        mode: str = "power",
        steps_per_trial: int = 3,
        init_val: int = 2,
        max_trials: int = 25,
        batch_arg_name: str = "batch_size",
        margin: float = 0.05,
        max_val: int | None = None,
    ) -> int:
        """The largest batch size that surely trains, which is also set in model, data module and their ``hparams``.

        The model is left as it is: no step is run on it.

        Args:
            model: a LightningModule.
            train_dataloaders: a loader to train from, or a LightningDataModule.
            datamodule: a LightningDataModule; default: the model's own loaders.
            method: only ``fit`` can be searched.
            batch_arg_name: attribute that holds the batch size.
            max_val: largest size to try; None = none.
            val_dataloaders, dataloaders, mode, steps_per_trial, init_val, max_trials, margin: taken so that calls need no
                change, and without effect: nothing is doubled on trust, and no margin is needed below what was certified.

        Raises:
            UsageError: an argument makes no sense, or nothing holds the batch size.
            NothingFits, WorkloadError, EnvironmentTrouble, TimeRanOut: see ``autotune.find_max_batch``.
        """
        if method != "fit":
            raise UsageError(f"method {method!r} cannot be searched", hint="leave it out: validation is probed along")
        if not is_a(model, LIGHTNING_MODULE):
            raise UsageError(f"the model is {kind_of(model)}, not a LightningModule", hint="pass the LightningModule")
        if datamodule is None and train_dataloaders is not None and is_a(train_dataloaders, LIGHTNING_DATA):
            datamodule, train_dataloaders = train_dataloaders, None
        holders = size_holders([each for each in (model, datamodule) if each is not None], batch_arg_name)
        if not holders:
            raise UsageError(
                f"neither the model nor its data module has {batch_arg_name}, in which the size found could be set",
                hint=f"keep it in self.{batch_arg_name} or hparams, or name another attribute: batch_arg_name=...",
            )
        pair = Pair(
            module=_alone(model),
            datamodule=None if datamodule is None else _alone(datamodule),
            train_dataloader=train_dataloaders,
            batch_arg_name=batch_arg_name,
        )
        self.evidence = find_max_batch(pair, **(self._of_trainer() | {"max_batch": max_val} | self._options))
        set_size(holders, batch_arg_name, int(self.evidence))
        return int(self.evidence)

    def _of_trainer(self) -> dict[str, Any]:
        """What of a search follows from how the Trainer trains.

        Raises:
            UsageError: it trains in a way that a probe does not.
        """
        trainer = self._trainer
        precision = _PRECISIONS.get(str(trainer.precision))
        if precision is None:
            raise UsageError(
                f"Trainer(precision={trainer.precision!r}) cannot be probed",
                hint=f"use one of {', '.join(name for name in _PRECISIONS if '-' in name)}",
            )
        if trainer.world_size > 1:
            raise UsageError(
                f"the Trainer spreads over {trainer.world_size} processes, and every one would search by itself",
                hint="search with Trainer(devices=1) first: the size holds for each device",
            )
        return {
            "device": str(trainer.strategy.root_device),
            "precision": precision,
            "accumulate": trainer.accumulate_grad_batches,
        }


def _alone(thing: Any) -> Any:
    """The same module or data module without its Trainer, which stays in this process; nothing else is copied."""
    found = copy.copy(thing)
    for name in ("_trainer", "trainer"):
        if vars(found).get(name) is not None:
            vars(found)[name] = None
    return found
