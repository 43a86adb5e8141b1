"""Python imports this file when it starts, because its folder is on PYTHONPATH; it waits for torch to be imported.

It must do no harm in any Python that a user's command starts: it imports nothing but the standard library (old versions of
Python included) until torch has been imported, and whatever goes wrong is written to a file and told by autotune, not here.
"""

import importlib.util
import json
import os
import sys
import traceback
from importlib.machinery import PathFinder
from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))


def _go_on() -> None:
    """Run the ``sitecustomize`` that this one hides, as Python would have."""
    rest = [entry for entry in sys.path if os.path.abspath(entry or os.getcwd()) != _HERE]
    spec = PathFinder.find_spec("sitecustomize", rest)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


class _Own:
    """Finds autotune and the few packages its hook needs and nothing else, for a Python that does not have them."""

    def __init__(self, roots: Any) -> None:
        self._roots = roots

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        root = self._roots.get(name.partition(".")[0])
        return None if root is None else PathFinder.find_spec(name, [root] if path is None else path)


class _Waiting:
    """Lets torch be imported by whoever imports it, and attaches the hook to it right after."""

    def __init__(self, order: str) -> None:
        self._order = order
        self._busy = False

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "torch" or self._busy:
            return None
        self._busy = True
        try:
            spec: Any = importlib.util.find_spec("torch")
        finally:
            self._busy = False
        if spec is not None and spec.loader is not None:
            spec.loader = _Attaching(spec.loader, self)
        return spec

    def attach(self) -> None:
        try:
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            with open(self._order) as file:
                roots = json.load(file)["roots"]
            sys.meta_path.append(_Own(roots))
            from autotune.probe.command.attach import attach

            attach(self._order)
        except Exception:  # noqa: BLE001 - nothing of ours may end the user's program; it is told below
            _tell(self._order, traceback.format_exc())


class _Attaching:
    """torch's own loader, and then the hook."""

    def __init__(self, loader: Any, waiting: _Waiting) -> None:
        self._loader = loader
        self._waiting = waiting

    def create_module(self, spec: Any) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._waiting.attach()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


def _tell(order: str, text: str) -> None:
    """Leave the reason where autotune looks for it."""
    try:
        with open(order) as file:
            path = json.load(file)["trouble"]
        with open(path, "a") as file:
            file.write(text)
    except (OSError, ValueError, KeyError):
        pass  # the search is over, or nobody reads it: the user's training goes on in any case


if os.environ.get("AUTOTUNE_HOOK"):
    sys.meta_path.insert(0, _Waiting(os.environ["AUTOTUNE_HOOK"]))
_go_on()
