"""What an adapter is: one convention of others, recognised by its names and turned into the parts of a workload."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import FunctionType, ModuleType

from autotune.workload.assemble import Found
from autotune.workload.parts import BATCH_DIM, BATCHES

_DATA = ("make_batch", "make_dataset", "collate", "shorten", BATCH_DIM)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One thing of the user's that an adapter takes, and where it stands."""

    thing: object
    """An object, class or function of the file, or what such a function returned."""
    name: str
    """What to call it: NAME, or ``NAME()`` for what was returned."""
    why: str
    """Why it is the workload."""
    target: str
    """The file or module as the user wrote it."""
    module: ModuleType | None = None
    """The loaded file; None for live objects."""
    members: Mapping[str, object] = field(default_factory=dict)
    """Parts of a workload (``make_batch``, ``loss`` …) that the file defines beside it, by name."""
    remake: Callable[[], object] | None = None
    """Makes another one like it; None where there is only this one."""

    @property
    def has_batches(self) -> bool:
        """Whether the file says itself what the batches are."""
        return any(name in self.data for name in BATCHES)

    @property
    def data(self) -> dict[str, object]:
        """What it says itself of batches. A ``make_loader`` of a file is left out: where a framework asks for loaders, that
        is a function of the user's own, with arguments of its own."""
        names = _DATA if self.module is not None else (*_DATA, "make_loader")
        return {name: self.members[name] for name in names if name in self.members}


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """One convention."""

    what: str
    """Its things in the plural, for messages: ``LightningModule classes``."""
    brought: Callable[[], bool]
    """Whether the user's file has brought the framework; nothing else is asked before."""
    takes: Callable[[object], bool]
    """Whether a thing follows the convention."""
    adapt: Callable[[Subject], Found]
    """Make a workload of it; raises WorkloadError where that cannot be done right."""


def own(module: ModuleType) -> dict[str, object]:
    """The names of a loaded file; classes and functions that it only imported left out."""
    package = f"{module.__name__}."
    return {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("__")
        and (not isinstance(value, type | FunctionType) or f"{value.__module__}.".startswith(package))
    }
