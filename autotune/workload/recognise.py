"""Finding the workload in a loaded module; the first match wins, and every finding says why.

with NAME       what a convention of others takes (``adapters``: a Hugging Face Trainer, a LightningModule …); an object
                with make_model and make_batch (or make_dataset); an nn.Module class or object; a class or a function
                without arguments that makes one of these
without NAME    ``autotune_task`` in the same way; functions make_model and make_batch (or make_dataset); the only
                class that has these methods; the only thing that a convention of others takes; the only nn.Module
                class, with make_batch or example_inputs
make_loader does in place of make_batch as well.
"""

import inspect
import textwrap
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import get_type_hints

from torch import nn

from autotune.errors import WorkloadError
from autotune.model import Recognised
from autotune.workload.adapters.adapter import Subject
from autotune.workload.adapters.table import FALLBACKS, FRAMEWORKS, adapted, is_brought, only_one
from autotune.workload.assemble import Found, assemble, signature
from autotune.workload.examples import batch_maker, example_name
from autotune.workload.outline import Outline
from autotune.workload.parts import BATCH_DIM, BATCHES, FORMS, accepts
from autotune.workload.seen import kind_of

_TASK = "autotune_task"


def recognise(module: ModuleType, target: str, name: str) -> Found:
    """Find the workload.

    Args:
        module: the loaded file.
        target: the file or module as the user wrote it.
        name: NAME of the reference; empty if none was given.

    Raises:
        UsageError: the module has no NAME.
        WorkloadError: nothing in it is a workload, or what is there cannot be used.
    """
    finder = _Finder(module, target)
    if name:
        return finder.named(name, f"{target}:{name}")
    if hasattr(module, _TASK):
        return finder.named(_TASK, f"{target} has {_TASK}")
    return finder.unnamed()


class _Finder:
    """One module under inspection."""

    def __init__(self, module: ModuleType, target: str) -> None:
        self._module = module
        self._target = target
        self._outline = Outline(module, target)

    def named(self, name: str, why: str) -> Found:
        """The workload that NAME stands for."""
        thing: object = self._module
        for part in name.split("."):
            if not hasattr(thing, part):
                raise self._outline.no_such_name(name)
            thing = getattr(thing, part)
        convention = self._adapted(thing, name, why)
        if convention is not None:
            return convention
        if isinstance(thing, nn.Module) or (isinstance(thing, type) and issubclass(thing, nn.Module)):
            return self._of_module(thing, name, why)
        if _is_task(thing) and not isinstance(thing, type):
            return self._of_task(thing, name, why)
        if not callable(thing):
            raise WorkloadError(
                f"{name} in {self._target} is {kind_of(thing)}, which is no workload", hint=self._outline.how()
            )
        if not accepts(thing):
            raise WorkloadError(
                f"{name} in {self._target} cannot be called without arguments: it takes {inspect.signature(thing)}",
                hint="give the arguments default values, or write a function without arguments that calls it",
            )
        if isinstance(thing, FunctionType) and self._has_batches() and _makes_model(thing) and not is_brought():
            # not called here: building a model while loading costs every probe time and memory
            return self._beside(thing, Recognised(what="model", found=f"{name}()", why=why))
        made = thing()
        convention = self._adapted(made, f"{name}()", why, thing)
        if convention is not None:
            return convention
        if isinstance(made, nn.Module):
            found = f"{name}(), which returns {kind_of(made)}"
            return self._with_batches(thing, made, Recognised(what="model", found=found, why=why))
        if _is_task(made):
            return self._of_task(made, f"{name}()", why)
        raise WorkloadError(
            f"{name}() in {self._target} returned {kind_of(made)}, which is neither an nn.Module nor an object "
            "with make_model and make_batch",
            hint=self._outline.how(),
        )

    def unnamed(self) -> Found:
        """The workload of a module that was given without NAME."""
        has_batches = self._has_batches()
        if hasattr(self._module, "make_model") and has_batches:
            why = f"{self._target} has make_model and {self._batch_name()}"
            members = self._members(self._module)
            found = Recognised(what="model", found=signature("make_model", members["make_model"]), why=why)
            return assemble(members, self._target, model=found, why="a function of the file")
        tasks = [cls for cls in self._outline.classes() if _is_task(cls)]
        modules = [cls for cls in self._outline.classes() if issubclass(cls, nn.Module) and not _is_task(cls)]
        convention = None if tasks else only_one(self._module, self._target, self._members(self._module), FRAMEWORKS)
        if convention is not None:
            return convention
        if hasattr(self._module, "make_model"):
            raise self._outline.nothing("make_model has neither make_batch nor make_dataset beside it")
        if len(tasks) == 1:
            if not accepts(tasks[0]):
                raise self._outline.nothing(f"{tasks[0].__name__} cannot be made without arguments")
            return self._of_task(tasks[0](), tasks[0].__name__, "the only class with make_model and make_batch")
        if len(tasks) > 1:
            raise self._outline.ambiguous("classes with make_model and make_batch", tasks)
        if len(modules) == 1 and (has_batches or example_name(modules[0]) or accepts(modules[0])):
            return self._of_module(modules[0], modules[0].__name__, "the only nn.Module class")
        if len(modules) > 1 and has_batches:
            raise self._outline.ambiguous("nn.Module classes", modules)
        convention = (
            only_one(self._module, self._target, self._members(self._module), FALLBACKS) if has_batches else None
        )
        if convention is not None:
            return convention
        raise self._outline.nothing()

    def _adapted(self, thing: object, name: str, why: str, remake: Callable[[], object] | None = None) -> Found | None:
        """What a convention of others makes of it; None if it follows none."""
        members = self._members(self._module)
        return adapted(
            Subject(
                thing=thing,
                name=name,
                why=why,
                target=self._target,
                module=self._module,
                members=members,
                remake=remake,
            )
        )

    def _of_module(self, thing: nn.Module | type[nn.Module], name: str, why: str) -> Found:
        if isinstance(thing, nn.Module):
            found = Recognised(what="model", found=f"{name}, {kind_of(thing)}", why=why)
            return self._with_batches(lambda: thing, thing, found)
        if not accepts(thing):
            raise WorkloadError(
                f"{name} in {self._target} cannot be made without arguments: it takes {inspect.signature(thing)}",
                hint=f"write make_model(), which returns {name} with its arguments",
            )
        return self._with_batches(thing, thing, Recognised(what="model", found=f"{name}()", why=why))

    def _with_batches(
        self, make_model: Callable[[], object], model: nn.Module | type[nn.Module], found: Recognised
    ) -> Found:
        """A model with the module's batches, else with its own example inputs, for which it may have to be made."""
        if self._has_batches():
            return self._beside(make_model, found)
        name = example_name(model)
        if not name:
            made = make_model()
            name = example_name(made) if isinstance(made, nn.Module) else ""
        if not name:
            raise self._outline.nothing(
                f"{found.found} has neither make_batch or make_dataset beside it nor example_inputs"
            )
        members = {**self._members(self._module), "make_model": make_model, "make_batch": batch_maker(make_model, name)}
        batch = Recognised(what="batch", found=f"{name} of the model", why="no make_batch in the file")
        return assemble(members, self._target, model=found, why="a function of the file", batch=batch)

    def _beside(self, make_model: Callable[[], object], found: Recognised) -> Found:
        members = {**self._members(self._module), "make_model": make_model}
        return assemble(members, self._target, model=found, why="a function of the file")

    def _of_task(self, task: object, name: str, why: str) -> Found:
        """A task object; what it does not have is taken from the file, but for batches, which belong to another task."""
        of_file = {key: value for key, value in self._members(self._module).items() if key not in BATCHES}
        members = {**of_file, **self._members(task)}
        found = Recognised(what="model", found=f"{name}.make_model()", why=why)
        return assemble(members, f"{self._target}:{name}", model=found, why=f"a method of {name}, or of the file")

    def _members(self, owner: object) -> dict[str, object]:
        members = {name: getattr(owner, name, None) for name in (*FORMS, BATCH_DIM)}
        # the standard library's shorten cuts a text, and a file may well have imported it; a plan may be one of anything
        if not _is_plain(members["make_plan"]):
            del members["make_plan"]
        return {k: member for k, member in members.items() if member is not None and member is not textwrap.shorten}

    def _has_batches(self) -> bool:
        return any(callable(getattr(self._module, name, None)) for name in BATCHES)

    def _batch_name(self) -> str:
        return next(name for name in BATCHES if hasattr(self._module, name))


def _is_plain(function: object) -> bool:
    """Whether it can be called without arguments."""
    return callable(function) and accepts(function)


def _is_task(thing: object) -> bool:
    has_batches = any(callable(getattr(thing, name, None)) for name in BATCHES)
    return has_batches and callable(getattr(thing, "make_model", None)) and not isinstance(thing, ModuleType)


def _makes_model(function: FunctionType) -> bool:
    """True unless the function says that it returns something else than a module."""
    try:
        returned = get_type_hints(function).get("return", nn.Module)
    except (NameError, TypeError, AttributeError):  # annotations that cannot be evaluated here say nothing
        return True
    return not isinstance(returned, type) or issubclass(returned, nn.Module)
