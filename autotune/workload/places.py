"""Which Python files and modules belong to the user's project and which to an installation."""

import os
import sys
import sysconfig
from pathlib import Path
from types import ModuleType

OWN = str(Path(os.path.abspath(__file__)).parents[1]) + os.sep
"""Folder of autotune itself."""

_STANDARD = tuple(
    str(Path(path)) + os.sep for path in {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")} if path
)
_PACKAGES = {"site-packages", "dist-packages"}


def is_installed(file: str) -> bool:
    """True for files of the standard library, of installed packages and of autotune, and for names that are no files."""
    if file.startswith(("<", OWN, *_STANDARD)):
        return True
    return not _PACKAGES.isdisjoint(Path(file).parts)


def is_library(module: str | None) -> bool:
    """True for the name of a module that comes from an installation; False for ``__main__`` and the user's modules.

    A module without a file (builtin, or made by an extension) is judged by the packages around it.
    """
    name = module or ""
    if name == "__main__":
        return False
    if name.partition(".")[0] in sys.stdlib_module_names:
        return True
    while name:
        file = getattr(sys.modules.get(name), "__file__", None)
        if file is not None:
            return is_installed(file)
        name = name.rpartition(".")[0]
    return False


def is_importable(module: ModuleType) -> bool:
    """Whether a fresh interpreter with the same ``sys.path`` would find this very module under its name.

    Nothing is imported. False for modules made at run time or loaded from a file that is on no path.
    """
    name, path = module.__name__, None
    if is_library(name):
        return True
    parent = name.rpartition(".")[0]
    if parent:
        around = sys.modules.get(parent)
        if around is None or not is_importable(around):
            return False
        path = getattr(around, "__path__", None)
    file = getattr(module, "__file__", None)
    for finder in sys.meta_path:
        find_spec = getattr(finder, "find_spec", None)  # hooks of old libraries have none
        spec = find_spec(name, path) if find_spec else None
        if spec is not None:
            return file is None or spec.origin is None or os.path.abspath(spec.origin) == os.path.abspath(file)
    return False
