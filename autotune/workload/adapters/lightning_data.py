"""Where a LightningModule's batches come from: the data set of its loader, or a loader of its own size each time."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler

from autotune.errors import WorkloadError
from autotune.workload.seen import kind_of

_PLAIN = (RandomSampler, SequentialSampler)


@dataclass(frozen=True, slots=True)
class Holder:
    """Something with loaders: a LightningDataModule, or the module itself."""

    owner: Any
    name: str
    """What the user calls it."""


def own_loader(holder: Holder, which: str) -> Any:
    """The one loader that ``train_dataloader`` or ``val_dataloader`` returns; None where the method is not written.

    Raises:
        WorkloadError: there are several.
    """
    method = getattr(holder.owner, which, None)
    if method is None or is_inherited(holder.owner, which):
        return None
    loader = method()
    if isinstance(loader, list | tuple) and len(loader) == 1:
        loader = loader[0]
    several = isinstance(loader, list | tuple | Mapping) or type(loader).__name__ == "CombinedLoader"
    if several and which == "train_dataloader":
        raise WorkloadError(
            f"{holder.name}.{which}() returns several loaders ({kind_of(loader)})",
            hint="write make_batch(batch_size) in the file: one batch as your training_step gets it",
        )
    return loader


def is_inherited(owner: object, method: str) -> bool:
    """Whether a hook is the framework's own, which does nothing or raises."""
    written = getattr(type(owner), method, None)
    module = str(getattr(written, "__module__", ""))
    return written is None or module.startswith(("lightning.", "pytorch_lightning."))


def is_plain(loader: object) -> bool:
    """Whether all that matters of a loader is its data set and how samples become a batch."""
    if not isinstance(loader, DataLoader) or loader.batch_size is None:
        return False
    return type(loader.batch_sampler) is BatchSampler or loader.batch_sampler is None


def size_holders(holders: Iterable[Any], name: str) -> list[Any]:
    """What the batch size is set in: objects, or their ``hparams``, that have such an attribute."""
    found = []
    for owner in holders:
        if hasattr(owner, name):
            found.append(owner)
        hparams = getattr(owner, "hparams", None)
        if isinstance(hparams, Mapping) and name in hparams:
            found.append(hparams)
    return found


def set_size(holders: Iterable[Any], name: str, batch_size: int) -> None:
    """Set it in all of them, as Lightning does."""
    for owner in holders:
        if isinstance(owner, dict):
            owner[name] = batch_size
        else:
            setattr(owner, name, batch_size)


def make_batch(holder: Holder, others: list[Any], name: str) -> Callable[[int], object]:
    """The first batch of a loader made anew with the size set, for loaders whose batches are their own affair.

    Raises:
        WorkloadError: there is nothing to set the size in.
    """
    holders = size_holders([holder.owner, *others], name)
    if not holders:
        raise WorkloadError(
            f"{holder.name}.train_dataloader() returns a loader that batches by itself, and neither it nor the module has"
            f" {name}, by which to set its size",
            hint=f"keep the size in self.{name} (or hparams) and use it in train_dataloader()",
        )

    def first(batch_size: int) -> object:
        set_size(holders, name, batch_size)
        for batch in holder.owner.train_dataloader():
            return batch
        raise WorkloadError(
            f"{holder.name}.train_dataloader() yields nothing at {name} {batch_size}", hint="look at its data set"
        )

    return first
