"""The table of adapters: which convention of others a thing of the user's follows, if any."""

from collections.abc import Mapping
from types import ModuleType

from autotune.errors import WorkloadError
from autotune.workload.adapters import hub, lightning, torchbench, trainer
from autotune.workload.adapters.adapter import Adapter, Subject, own
from autotune.workload.adapters.kinds import is_whole
from autotune.workload.adapters.lightning_pair import Pair
from autotune.workload.assemble import Found

FRAMEWORKS: tuple[Adapter, ...] = (trainer.ADAPTER, lightning.ADAPTER, torchbench.ADAPTER)
FALLBACKS: tuple[Adapter, ...] = (hub.ADAPTER,)
"""Conventions that plain helpers may follow by accident: without NAME they count where there is nothing else."""


def adapted(subject: Subject) -> Found | None:
    """The workload that a thing is by one of the conventions; None if it follows none.

    Raises:
        WorkloadError: it follows one, and cannot be probed.
    """
    for adapter in (*FRAMEWORKS, *FALLBACKS):
        if adapter.brought() and adapter.takes(subject.thing):
            return adapter.adapt(subject)
    return None


def live(members: Mapping[str, object], origin: str) -> Found | None:
    """The workload of live objects, where the first of them is one by a convention and no other loss was given."""
    thing = members["make_model"]
    if not is_whole(thing) or "loss" in members:
        return None
    others = {name: part for name, part in members.items() if name != "make_model"}
    name = f"the live {type(thing.module if isinstance(thing, Pair) else thing).__name__}"
    return adapted(Subject(thing=thing, name=name, why=origin, target="the call", members=others))


def only_one(
    module: ModuleType, target: str, members: Mapping[str, object], adapters: tuple[Adapter, ...]
) -> Found | None:
    """The workload of a file that was given without NAME, by the first convention that anything in it follows.

    Args:
        module: the loaded file.
        target: the file as the user wrote it.
        members: the parts of a workload that it defines, by name.
        adapters: conventions to look for.

    Raises:
        WorkloadError: several things follow it, or the one that does cannot be probed.
    """
    for adapter in adapters:
        if not adapter.brought():
            continue
        found = {name: value for name, value in own(module).items() if adapter.takes(value)}
        objects = {name: value for name, value in found.items() if not isinstance(value, type)}
        found = objects or found  # an object has the arguments that its class has not
        if len({id(value) for value in found.values()}) > 1:
            names = sorted(found)
            raise WorkloadError(
                f"{target} has several {adapter.what}: {', '.join(names)}", hint=f"say which: {target}:{names[-1]}"
            )
        if found:
            name, thing = next(iter(found.items()))
            why = f"{target} has no other of {adapter.what}"
            return adapter.adapt(
                Subject(thing=thing, name=name, why=why, target=target, module=module, members=members)
            )
    return None


def is_brought() -> bool:
    """Whether what a function of the file returns may be one of these things, so that it has to be called to know."""
    return trainer.ADAPTER.brought() or lightning.ADAPTER.brought()
