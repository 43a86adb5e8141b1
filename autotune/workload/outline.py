"""What a module defines, and the errors that say so when no workload was recognised in it."""

import difflib
import shlex
from types import FunctionType, ModuleType

from autotune.errors import UsageError, WorkloadError

_SHOWN = 12


class Outline:
    """The functions and classes of one module, imported ones left out."""

    def __init__(self, module: ModuleType, target: str) -> None:
        """``target`` is the module as the user wrote it."""
        self._module = module
        self._target = target

    def classes(self) -> list[type]:
        """Classes that the module, or a part of it if it is a package, defines."""
        package = f"{self._module.__name__}."
        every = [value for value in vars(self._module).values() if isinstance(value, type)]
        return [cls for cls in dict.fromkeys(every) if f"{cls.__module__}.".startswith(package)]

    def how(self) -> str:
        """Hint: what a NAME may be."""
        return f"name an nn.Module class, or an object with make_model and make_batch: {self._target}:NAME"

    def no_such_name(self, name: str) -> UsageError:
        """The module has nothing of that name."""
        known = [key for key in vars(self._module) if not key.startswith("__")]
        close = difflib.get_close_matches(name, known, n=3)
        offered = " or ".join(f"{self._target}:{key}" for key in close)
        return UsageError(
            f"{self._target} has no {name}", hint=f"did you mean {offered}?" if close else f"it defines {self._own()}"
        )

    def ambiguous(self, what: str, classes: list[type]) -> WorkloadError:
        """Several things could be the workload."""
        names = [cls.__name__ for cls in classes]
        return WorkloadError(
            f"{self._target} has several {what}: {', '.join(names)}",
            hint=f"say which: {self._target}:{names[-1]}, or write make_model()",
        )

    def nothing(self, what: str = "") -> WorkloadError:
        """No workload, with whatever comes close to one; ``what`` has been found of it, empty: nothing."""
        hints = []
        model, batch = self._near("make_model"), self._near("make_batch")
        if model:
            hints.append(f"found `{model}`; rename it to make_model or pass {self._target}:{model}")
        if batch:
            hints.append(f"found `{batch}`; rename it to make_batch")
        missing = [] if what or model or hasattr(self._module, "make_model") else ["make_model()"]
        if not batch and not hasattr(self._module, "make_batch"):
            missing.append("make_batch(batch_size)")
        if missing:
            hints.append(f"write {' and '.join(missing)}")
        hints.append("`autotune init` writes a model file to start from")
        if len(missing) == 2 and self._target.endswith(".py"):
            hints.append(
                f"a script that trains stays as it is: autotune search -- python {shlex.quote(self._target)} --batch-size {{batch}}"
            )
        what = what or "no workload was recognised"
        return WorkloadError(f"{self._target}: {what}; the file defines {self._own()}", hint="; ".join(hints))

    def _near(self, wanted: str) -> str:
        """A function that is probably meant; empty if the wanted one is there or none is close."""
        if hasattr(self._module, wanted):
            return ""
        names = [name for name in self._defined() if isinstance(vars(self._module)[name], FunctionType)]
        noun = wanted.removeprefix("make_")
        close = difflib.get_close_matches(wanted, names, n=1, cutoff=0.7)
        return next(iter([*close, *(name for name in names if noun in name.lower())]), "")

    def _defined(self) -> list[str]:
        every = vars(self._module).items()
        return [
            name
            for name, value in every
            if isinstance(value, FunctionType | type) and value.__module__ == self._module.__name__
        ]

    def _own(self) -> str:
        names = self._defined()
        if not names:
            return "no function and no class"
        return ", ".join(names[:_SHOWN]) + (" …" if len(names) > _SHOWN else "")
