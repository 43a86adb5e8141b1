"""In every process of a run whose PYTHONPATH begins here: a tool forks what certifies, on the CPU as it does on CUDA."""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType

_LAUNCHER = "autotune.probe.launcher"


class _Loader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        module.Launcher._certifies_afresh = False


class _Finder(MetaPathFinder):
    """Waits for whoever imports the launcher: most processes of a run never do."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _LAUNCHER:
            return None
        spec = PathFinder.find_spec(fullname, path)
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(fullname, spec.origin)
        return spec


sys.meta_path.insert(0, _Finder())
