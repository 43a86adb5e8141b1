"""Live functions and modules -> a file that a probe process can load. Parent side: torch is looked at, never imported.

Code goes by value where a probe process could not import it (scripts, notebooks, modules made at run time), else by
reference. Tensors go as copies on the CPU; the caller's module, modes, random state and devices are only read.
"""

import io
import os
import pickle
import sys
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import cloudpickle

from autotune.errors import EnvironmentTrouble, UsageError
from autotune.model import Source
from autotune.workload.adapters.kinds import is_whole
from autotune.workload.adapters.prepared import reduced
from autotune.workload.blame import find_culprit
from autotune.workload.places import is_importable
from autotune.workload.seen import is_module, is_torch_tensor, kind_of
from autotune.workload.structure import structural_hash

BATCH_DIM = "batch_dim"
"""As in ``parts``, which imports torch."""
_SIGNATURES = {
    "make_model": "make_model() -> nn.Module",
    "make_batch": "make_batch(batch_size) -> batch",
    "loss": "loss(model, batch) -> scalar tensor",
    "make_optimizer": "make_optimizer(params) -> optimizer",
    "evaluate": "evaluate(model, batch)",
    "make_loader": "make_loader(batch_size) -> data loader",
    "make_dataset": "make_dataset() -> data set",
    "collate": "collate(samples) -> batch",
    "shorten": "shorten(batch, share) -> batch",
}


def pack(
    make_model: object,
    make_batch: object = None,
    loss: object = None,
    make_optimizer: object = None,
    evaluate: object = None,
    make_dataset: object = None,
    collate: object = None,
    shorten: object = None,
    make_loader: object = None,
    batch_dim: int | None = None,
    *,
    path: Path,
) -> Source:
    """Write the workload's parts into ``path``.

    Args:
        make_model: a function without arguments that makes the model, a live ``nn.Module``, or a live object of another
            framework that brings its own batches (``adapters.kinds.is_whole``).
        make_batch, loss, make_optimizer, evaluate, make_dataset, collate, shorten, make_loader, batch_dim: as in a model
            file; None = not given.
        path: file to write; read by every probe process.

    Raises:
        UsageError: a part is missing, cannot be called, or holds something that cannot leave this process.
        EnvironmentTrouble: the file cannot be written.
    """
    parts = {
        "make_model": make_model,
        "make_batch": make_batch,
        "loss": loss,
        "make_optimizer": make_optimizer,
        "evaluate": evaluate,
        "make_dataset": make_dataset,
        "collate": collate,
        "shorten": shorten,
        "make_loader": make_loader,
        BATCH_DIM: batch_dim,
    }
    parts = {name: part for name, part in parts.items() if part is not None}
    _check(parts)
    _write(path, *_pickled(parts))
    name = getattr(make_model, "__qualname__", type(make_model).__qualname__)
    return Source(
        ref=f"live:{name}",
        pickle_path=os.path.abspath(path),
        fingerprint=structural_hash(parts),
        directory=os.getcwd(),
        search_path=tuple(dict.fromkeys(os.path.abspath(entry) for entry in sys.path)),
    )


def _write(path: Path, payload: bytes, tensors: list[object]) -> None:
    try:
        with path.open("wb") as file:
            if tensors:
                # one file with both; torch copies device tensors to the host one by one, and writes shared memory once
                sys.modules["torch"].save((payload, tensors), file, pickle_module=cloudpickle)
            else:
                file.write(payload)
    except OSError as error:
        raise EnvironmentTrouble(
            f"cannot write {path}: {error.strerror or error}",
            hint="free disk space there, or set TMPDIR to a folder that has some",
        ) from error
    except Exception as error:
        raise UsageError(
            f"the tensors of the model or functions cannot be saved ({type(error).__name__}: {error})",
            hint="pass a function make_model() that builds the model, or a path: find_max_batch('model.py')",
        ) from error


def _check(parts: dict[str, object]) -> None:
    if "make_model" not in parts:
        raise UsageError("no model was given", hint=f"pass a live nn.Module or {_SIGNATURES['make_model']}")
    whole = is_whole(parts["make_model"])
    for name, part in parts.items():
        if name == BATCH_DIM:
            if isinstance(part, bool) or not isinstance(part, int) or part < 0:
                raise UsageError(f"batch_dim is {part!r}", hint="give the number of a dimension; 0 is the first")
        elif not callable(part) and not (whole and name == "make_model"):
            raise UsageError(f"{name} is {kind_of(part)}, which cannot be called", hint=f"pass {_SIGNATURES[name]}")
    if not {"make_batch", "make_loader", "make_dataset"} & parts.keys() and not whole:
        raise UsageError(
            "neither make_batch nor make_dataset was given",
            hint=f"pass {_SIGNATURES['make_batch']}, or {_SIGNATURES['make_dataset']}",
        )


def _pickled(parts: dict[str, object]) -> tuple[bytes, list[object]]:
    """The parts in one pickle, so that what they share stays shared, and the tensors left out of it."""
    stream = io.BytesIO()
    tensors: list[object] = []
    try:
        _dump(parts, stream, tensors)
    except Exception as error:  # pickling runs the caller's own __reduce__, which may raise anything
        raise _refusal(parts, error) from error
    return stream.getvalue(), tensors


def _refusal(parts: dict[str, object], error: Exception) -> UsageError:
    name = next((name for name, part in parts.items() if not _can_leave(part)), "")
    if not name:
        return UsageError(
            f"the functions cannot be sent to a probe process together: {error}", hint=_hint("make_batch")
        )
    where, what = find_culprit(parts[name], _can_leave)
    if is_module(parts[name]):
        owner, hint = "the model", "pass a function make_model() that builds it, or a path: find_max_batch('model.py')"
    else:
        owner, hint = name, _hint(name)
    used = f"it holds `{where}`, {what}" if where else f"it is {what}"
    reason = next(iter(str(error).splitlines()), type(error).__name__)
    return UsageError(f"{owner} cannot be sent to a probe process: {used} ({reason})", hint=hint)


def _hint(name: str) -> str:
    return f"create it inside {name}(), or use a path: find_max_batch('model.py')"


def _can_leave(part: object) -> bool:
    try:
        _dump(part, io.BytesIO(), [])
    except Exception:  # noqa: BLE001 - as above; the reason was reported by the first attempt
        return False
    return True


def _dump(item: object, stream: io.BytesIO, tensors: list[object]) -> None:
    pickler = _Pickler(stream, tensors)
    try:
        pickler.dump(item)
    finally:
        pickler.forget()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    """Leaves tensors out of the stream, and takes code by value where no other process could import it."""

    def __init__(self, stream: io.BytesIO, tensors: list[object]) -> None:
        super().__init__(stream, protocol=pickle.HIGHEST_PROTOCOL)
        self._tensors = tensors
        self._numbers: dict[int, int] = {}
        self._kept: list[object] = []
        """Tensors met, kept alive so that an id stays theirs."""
        self._judged: set[str] = set()
        self._by_value: list[ModuleType] = []

    def persistent_id(self, item: object) -> tuple[int, str, bool, dict[str, object]] | None:
        """(number, kind, requires_grad, attributes) for a tensor, which is carried beside the stream; None for all else."""
        if not is_torch_tensor(item):
            return None
        tensor: Any = item
        torch: Any = sys.modules["torch"]
        kind = {torch.Tensor: "tensor", torch.nn.Parameter: "parameter"}.get(type(tensor), "other")
        known = self._numbers.get(id(tensor))
        if known is not None:
            return known, kind, bool(tensor.requires_grad), {}
        number = self._numbers[id(tensor)] = len(self._tensors)
        self._kept.append(tensor)
        # detached: same memory, no graph, no gradient, no hooks. Other kinds know themselves how to be saved.
        self._tensors.append(tensor if kind == "other" else tensor.detach())
        return number, kind, bool(tensor.requires_grad), {} if kind == "other" else dict(tensor.__dict__)

    def reducer_override(self, item: object) -> Any:
        """As cloudpickle, after deciding how the code of the item's module travels."""
        if isinstance(item, FunctionType | type):
            self._judge(item.__module__)
        elif isinstance(item, ModuleType):
            self._judge(item.__name__)
        elif isinstance(item, io.IOBase) and not _can_travel(item):
            raise pickle.PicklingError("an open file cannot leave its process")
        changed = reduced(item)
        return super().reducer_override(item) if changed is NotImplemented else changed

    def _judge(self, name: str | None) -> None:
        if not name or name in self._judged:
            return
        self._judged.add(name)
        module = sys.modules.get(name)
        if module is None or name == "__main__" or is_importable(module):
            return
        if name not in cloudpickle.list_registry_pickle_by_value():
            cloudpickle.register_pickle_by_value(module)
            self._by_value.append(module)

    def forget(self) -> None:
        """Undo what was registered with cloudpickle, which keeps it for the whole process."""
        for module in self._by_value:
            cloudpickle.unregister_pickle_by_value(module)


def _can_travel(file: io.IOBase) -> bool:
    """True for files in memory and for the standard streams, which every process has."""
    return isinstance(file, io.BytesIO | io.StringIO) or file in (sys.stdin, sys.stdout, sys.stderr)
