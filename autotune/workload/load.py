"""Loading the user's file as ``python model.py`` would, in a process of its own. Child side.

Changes the process for good: working directory, ``sys.path``, ``sys.argv``. Nothing here touches a device.
"""

import importlib
import io
import os
import pickle
import sys
import types
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

import torch

from autotune.model import Source
from autotune.workload.adapters.table import live
from autotune.workload.assemble import Found, from_parts
from autotune.workload.door import door
from autotune.workload.recognise import recognise
from autotune.workload.source import Place, locate
from autotune.workload.task import Workload

_ORIGIN = "passed by the caller"


def load(source: Source, *, rank: int = 0, world_size: int = 1) -> Workload:
    """Run the user's file (or unpickle the live objects) and find the workload in it.

    ``rank`` and ``world_size``: of this process, for functions that ask for them.

    Raises:
        WorkloadError: the file raises, exits, or holds no workload; ``detail`` is the user's own traceback.
        UsageError: the file has no object of the NAME asked for.
    """
    if source.directory:
        os.chdir(source.directory)
    if source.pickle_path:
        found = _live(source)
        what = "the live objects"
    else:
        place = locate(source)
        what = place.target
        module = _run_file(place, source) if place.file is not None else _import(place, source)
        with door(what):
            found = recognise(module, place.target, place.name)
    with door(what, "reading its data set"):
        parts, notes = found.parts, found.notes
        return Workload(source.ref, parts, found.recognised, notes, rank=rank, world_size=world_size)


def _run_file(place: Place, source: Source) -> types.ModuleType:
    assert place.file is not None
    sys.path.insert(0, str(place.file.parent))
    sys.argv = [place.target, *source.script_args]
    name = _free_name(place.file)
    spec = spec_from_file_location(name, place.file, loader=SourceFileLoader(name, str(place.file)))
    assert spec is not None
    module = module_from_spec(spec)
    sys.modules[name] = module  # data classes, pickles and loader workers look it up
    try:
        with door(place.target):
            # compiled here: as for `python model.py`, no byte code is written beside the file, and none is read
            code = compile(place.file.read_bytes(), str(place.file), "exec", dont_inherit=True)
            exec(code, module.__dict__)  # noqa: S102 - running the user's file is the point
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _free_name(file: Path) -> str:
    """The file's own name, or another one where that would hide a module that others use."""
    known = sys.modules.get(file.stem)
    if known is None or getattr(known, "__file__", None) == str(file):
        return file.stem
    return f"autotune_workload_{file.stem}"


def _import(place: Place, source: Source) -> types.ModuleType:
    sys.path.insert(0, source.directory or os.getcwd())
    sys.argv = [place.target, *source.script_args]
    with door(place.target):
        module = importlib.import_module(place.module)
    if module.__file__ is not None:
        sys.argv[0] = module.__file__
    return module


def _live(source: Source) -> Found:
    """Unpickle what ``live.pack`` wrote."""
    sys.path[:] = [*source.search_path, *(entry for entry in sys.path if entry not in source.search_path)]
    sys.argv = [source.ref]
    path = Path(source.pickle_path)
    with door("the live objects"):
        with path.open("rb") as file:
            if is_zipfile(file):
                file.seek(0)
                # the caller's own objects, which the pickle beside the tensors runs as code in any case
                payload, tensors = torch.load(file, map_location="cpu", weights_only=False)
            else:
                file.seek(0)
                payload, tensors = file.read(), []
        members = _Unpickler(payload, tensors).load()
        return live(members, _ORIGIN) or from_parts(members, "the call")


class _Unpickler(pickle.Unpickler):
    """Puts tensors back where they were; one object for each, so that tied weights stay tied."""

    def __init__(self, payload: bytes, tensors: list[torch.Tensor]) -> None:
        super().__init__(io.BytesIO(payload))
        self._tensors = tensors
        self._made: dict[int, torch.Tensor] = {}

    def persistent_load(self, pid: Any) -> torch.Tensor:
        """The tensor that ``live`` gave this number, kind, gradient flag and attributes."""
        number, kind, requires_grad, attributes = pid
        tensor = self._made.get(number)
        if tensor is None:
            tensor = self._tensors[number]
            if kind == "parameter":
                tensor = torch.nn.Parameter(tensor, requires_grad)
            elif kind == "tensor":
                tensor.requires_grad_(requires_grad)
            self._made[number] = tensor
        tensor.__dict__.update(attributes)
        return tensor
