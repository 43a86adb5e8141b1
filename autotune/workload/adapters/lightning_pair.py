"""A live LightningModule with what belongs to it, on its way to a probe process. Imports neither Lightning nor torch."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """What ``fit`` is called with."""

    module: Any
    datamodule: Any = None
    """None = the module has its own loaders."""
    train_dataloader: Any = None
    """A loader to train from, in place of theirs."""
    batch_arg_name: str = "batch_size"
    """Attribute of module, data module or their hparams that holds the batch size."""
