"""Keeping a Hugging Face Trainer that is made in a probe process from touching the device and from leaving anything behind.

Making ``TrainingArguments`` starts the accelerator and making a ``Trainer`` moves the model there, makes the output
folder and connects to trackers: before a limit is set, in every probe, and in a process that is to be forked. So the
class is changed as soon as the user's file imports it, and only then; nothing is imported here.
"""

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

MODULE = "transformers.training_args"
_HELD = ("tf32", "torch_compile", "torch_compile_mode", "torch_compile_backend")
"""Arguments that look at the device as soon as they are checked. They are read from here (``asked``) afterwards."""
_KEPT = "_autotune_asked"


def hold_back_trainers() -> None:
    """From here on, ``TrainingArguments`` are made for the CPU and do not report, push or save. For probe processes."""
    if MODULE in sys.modules:
        _change(sys.modules[MODULE])
    else:
        sys.meta_path.insert(0, _AfterImport())


def asked(arguments: object, name: str) -> Any:
    """What the user gave for an argument, held back or not."""
    held: dict[str, Any] = getattr(arguments, _KEPT, {})
    return held.get(name, getattr(arguments, name, None))


def _change(module: ModuleType) -> None:
    arguments: Any = module.TrainingArguments
    plain = arguments.__post_init__

    def post_init(self: Any) -> None:
        kept = {name: getattr(self, name) for name in _HELD if hasattr(self, name)}
        setattr(self, _KEPT, kept)
        for name, value in kept.items():
            setattr(self, name, False if isinstance(value, bool) and name != "tf32" else None)
        self.use_cpu, self.report_to, self.push_to_hub = True, "none", False
        plain(self)

    arguments.__post_init__ = post_init
    arguments.should_save = property(lambda self: False)  # asked before the output folder is made


class _AfterImport(MetaPathFinder):
    """Changes the class at the end of its module's import, which the other finders do as ever."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        """The module's own spec with a loader that goes on to change the class; None for every other module."""
        if name != MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        loader: Any = spec.loader if spec is not None else None
        if loader is None:
            return spec
        plain = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            plain(module)
            _change(module)

        loader.exec_module = exec_module
        return spec
