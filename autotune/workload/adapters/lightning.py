"""A LightningModule (class or object), with a LightningDataModule beside it or loaders of its own.

What runs in a probe is its own training_step, validation_step and configure_optimizers; what Lightning's loop does around
them, autotune does. Hooks that hold memory are called as well: those at the start of training, and of each batch.
"""

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any, cast

from autotune.errors import WorkloadError
from autotune.model import Recognised
from autotune.workload.adapters.adapter import Adapter, Subject, own
from autotune.workload.adapters.kinds import LIGHTNING_DATA, LIGHTNING_MODULE, PAIR, is_a, is_brought
from autotune.workload.adapters.lightning_data import Holder, is_inherited, is_plain, make_batch, own_loader
from autotune.workload.adapters.lightning_pair import Pair
from autotune.workload.adapters.lightning_training import Training
from autotune.workload.assemble import Found, assemble
from autotune.workload.parts import accepts
from autotune.workload.seen import kind_of

SIZE = "batch_size"
"""Attribute that Lightning's users keep the batch size in."""


def _takes(thing: object) -> bool:
    return is_a(thing, PAIR) or is_a(thing, LIGHTNING_MODULE)


def _adapt(subject: Subject) -> Found:
    thing, size_name, loader = subject.thing, SIZE, None
    data: Any = None
    if isinstance(thing, Pair):
        data, size_name, loader, thing = thing.datamodule, thing.batch_arg_name, thing.train_dataloader, thing.module
    elif subject.module is not None:
        data = _data_module(subject.module, subject.target)
    name = subject.name
    remake = subject.remake
    if isinstance(thing, type):
        if not accepts(thing):
            raise WorkloadError(
                f"{name} in {subject.target} cannot be made without arguments: it takes {inspect.signature(thing)}",
                hint=f"give them default values, or write a function that returns {name} with its arguments and name it:"
                f" {subject.target}:FUNCTION",
            )
        remake = cast("Callable[[], object]", thing)
    module: Any = thing() if isinstance(thing, type) else thing
    training = Training(module, remake, data, size_name)
    training.check(type(module).__name__)
    members: dict[str, object] = {
        **subject.data,
        "make_model": training.make_model,
        "make_optimizer": training.make_optimizer,
        "loss": training.loss,
    }
    told = training.told(type(module).__name__)
    holders = [Holder(data, type(data).__name__)] if data is not None else []
    holders.append(Holder(module, type(module).__name__))
    for holder in holders:
        _set_up(holder.owner)
    if not subject.has_batches:
        members |= _batches(holders, loader, size_name, training, told)
    if training.evaluates:
        members["evaluate"] = training.evaluate
        training.evaluation_data = next(
            (found for holder in holders if (found := own_loader(holder, "val_dataloader")) is not None), None
        )
    shown = f"{name}()" if isinstance(subject.thing, type) else name
    return assemble(
        members,
        subject.target,
        model=Recognised(what="model", found=f"{shown}, {kind_of(module)}", why=subject.why),
        why="a function of the file",
        told=told,
        notes=training.notes,
    )


def _batches(
    holders: list[Holder], loader: Any, size_name: str, training: Training, told: dict[str, Recognised]
) -> dict[str, object]:
    """Parts that make batches, from a loader that was given or the first that one of the holders has.

    Raises:
        WorkloadError: there is none.
    """
    where, holder = "the train_dataloaders given", holders[0]
    if loader is None:
        for holder in holders:
            loader = own_loader(holder, "train_dataloader")
            if loader is not None:
                where = f"{holder.name}.train_dataloader()"
                break
        else:
            raise WorkloadError(
                f"{holders[-1].name} has no train_dataloader, and there is no LightningDataModule beside it",
                hint="write train_dataloader(), a LightningDataModule in the same file, or make_batch(batch_size)",
            )
    if is_plain(loader):
        told["make_batch"] = Recognised(
            what="batch", found=f"the largest samples of {where}", why="its data set and collate_fn"
        )
        told["make_dataset"] = Recognised(what="data set", found=f"that of {where}", why="what it trains on")
        return {"make_dataset": lambda: loader.dataset, "collate": training.collated(loader.collate_fn)}
    if where.endswith("given"):
        raise WorkloadError(
            f"{kind_of(loader)} was given, which batches by itself, so that no other size can be made with it",
            hint="give a DataLoader of a data set with batch_size, or keep the loader in train_dataloader()",
        )
    others = [each.owner for each in holders if each is not holder]
    told["make_batch"] = Recognised(
        what="batch",
        found=f"the first batch of {where}",
        why=f"{kind_of(loader)} batches by itself; {size_name} is set",
    )
    return {"make_batch": training.batched(make_batch(holder, others, size_name))}


def _data_module(module: ModuleType, target: str) -> Any:
    """The file's only LightningDataModule, made if it is a class; None if it has none.

    Raises:
        WorkloadError: there are several, or it cannot be made without arguments.
    """
    found = {name: value for name, value in own(module).items() if is_a(value, LIGHTNING_DATA)}
    found = {name: value for name, value in found.items() if not isinstance(value, type)} or found
    if len({id(value) for value in found.values()}) > 1:
        raise WorkloadError(
            f"{target} has several LightningDataModules: {', '.join(sorted(found))}",
            hint="keep one in the file, or write make_dataset() and collate(samples)",
        )
    for name, value in found.items():
        if not isinstance(value, type):
            return value
        if not accepts(value):
            raise WorkloadError(
                f"{name} in {target} cannot be made without arguments: it takes {inspect.signature(value)}",
                hint=f"give them default values, or make it at the top of the file: data = {name}(...)",
            )
        return value()
    return None


def _set_up(owner: Any) -> None:
    """What ``fit`` calls before it asks for loaders."""
    if not is_inherited(owner, "prepare_data"):
        owner.prepare_data()
    if not is_inherited(owner, "setup"):
        owner.setup("fit")


ADAPTER = Adapter(what="LightningModules", brought=lambda: is_brought(LIGHTNING_MODULE), takes=_takes, adapt=_adapt)
