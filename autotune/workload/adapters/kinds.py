"""Telling objects of other frameworks by the qualified names of their classes. Imports none of them, and no torch."""

import sys

TRAINER = ("transformers.trainer.Trainer",)
LIGHTNING_MODULE = ("lightning.pytorch.core.module.LightningModule", "pytorch_lightning.core.module.LightningModule")
LIGHTNING_DATA = (
    "lightning.pytorch.core.datamodule.LightningDataModule",
    "pytorch_lightning.core.datamodule.LightningDataModule",
)


def is_a(thing: object, names: tuple[str, ...]) -> bool:
    """Whether an object, or a class, is of a class with one of these qualified names."""
    cls = thing if isinstance(thing, type) else type(thing)
    return any(f"{base.__module__}.{base.__qualname__}" in names for base in cls.__mro__)


PAIR = ("autotune.workload.adapters.lightning_pair.Pair",)


def is_whole(thing: object) -> bool:
    """Whether a live object brings its own batches and training step: a Trainer, a LightningModule."""
    return not isinstance(thing, type) and any(is_a(thing, names) for names in (TRAINER, LIGHTNING_MODULE, PAIR))


def is_brought(names: tuple[str, ...]) -> bool:
    """Whether the user's file has brought one of these classes; before that there can be no object of them."""
    return any(name.rpartition(".")[0] in sys.modules for name in names)
