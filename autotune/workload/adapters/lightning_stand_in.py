"""What a LightningModule sees of its Trainer in a probe, where there is none: no loop, no logger, no device."""

import sys
from types import SimpleNamespace
from typing import Any

from torch import nn

_EPOCHS = 10
_STEPS = 1000
"""Schedules are made for some length of training; a probe never comes to its end."""


class StandIn:
    """The attributes of ``lightning.Trainer`` that modules ask for while they train."""

    def __init__(self, datamodule: object) -> None:
        """``datamodule``: the file's own, which modules may look at; None = none."""
        self.datamodule = datamodule
        self.max_epochs = self.min_epochs = _EPOCHS
        self.max_steps = self.estimated_stepping_batches = self.num_training_batches = _STEPS
        self.current_epoch = self.global_step = 0
        self.world_size = self.num_devices = self.num_nodes = 1
        self.global_rank = self.local_rank = self.node_rank = 0
        self.accumulate_grad_batches = 1
        self.is_global_zero = self.training = True
        self.validating = self.testing = self.predicting = self.sanity_checking = False
        self.fast_dev_run = self.barebones = False
        self.logger = _dummy_logger()
        self.loggers = [self.logger] if self.logger is not None else []
        self.log_dir = self.ckpt_path = None
        self.callbacks: list[object] = []
        self.checkpoint_callback = self.early_stopping_callback = None
        self.callback_metrics: dict[str, object] = {}
        self.logged_metrics: dict[str, object] = {}
        self.progress_bar_metrics: dict[str, object] = {}
        self.gradient_clip_val = None
        self.precision = "32-true"
        self.optimizers: list[object] = []
        self.lr_scheduler_configs: list[object] = []
        self.strategy = SimpleNamespace(_lightning_optimizers=self.optimizers, reduce=lambda value, **_: value)

    def __getattr__(self, name: str) -> Any:
        """
        Raises:
            AttributeError: a probe has no such thing.
        """
        raise AttributeError(
            f"self.trainer has no {name} while autotune probes the module; guard it, or give it a default:"
            f" getattr(self.trainer, {name!r}, None)"
        )


def attach(module: nn.Module, datamodule: object) -> None:
    """Give a LightningModule its stand-in, and let ``self.log`` do nothing: what it keeps are single numbers."""
    known: Any = module
    known.trainer = StandIn(datamodule)
    for name in ("log", "log_dict"):
        module.__dict__[name] = _nothing


def _nothing(*args: object, **kwargs: object) -> None:
    """In place of ``self.log``."""


def _dummy_logger() -> Any:
    """The framework's own logger that takes every call and writes nothing, so that ``self.logger.experiment`` works."""
    for name in ("lightning.pytorch.loggers.logger", "pytorch_lightning.loggers.logger"):
        made = getattr(sys.modules.get(name), "DummyLogger", None)
        if made is not None:
            return made()
    return None
