"""Checkpoints that are whole or not there: written beside the old file, flushed to the disk, put in its place at once."""

import errno
import os
import pickle
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import psutil
import torch

from autotune.errors import EnvironmentTrouble, UsageError
from autotune.runtime.randomness import all_states, set_all

_VERSION = 1
_REFUSED = re.compile(r"GLOBAL ([\w.]+)")
"""In what PyTorch says when it refuses to load an object: its type."""
_FIELDS = {"autotune_checkpoint", "step", "model", "optimizer", "scaler", "others", "random"}


class Stateful(Protocol):
    """A learning rate scheduler, a sampler, whatever else a training goes on from."""

    def state_dict(self) -> Mapping[str, Any]:
        """Numbers, texts, tensors and containers of them."""

    def load_state_dict(self, state_dict: Any, /) -> object:
        """Take them back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What a training goes on from. ``load_checkpoint`` reads one."""

    step: int
    """Optimizer steps that were finished."""
    model: Mapping[str, Any]
    optimizer: Mapping[str, Any]
    scaler: Mapping[str, Any] | None
    others: Mapping[str, Mapping[str, Any]]
    random: Mapping[str, Any]

    def restore(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        scaler: torch.amp.GradScaler | None = None,
        others: Mapping[str, Stateful] | None = None,
    ) -> int:
        """Put all of it back, random numbers of Python, NumPy and PyTorch last; returns ``step``.

        On the same machine and versions the training goes on bit for bit, if its operations are deterministic and its
        data goes on from the same sample.

        Raises:
            UsageError: the checkpoint has no state for one of these, or for one that is not given.
        """
        given = {name for name, thing in {"scaler": scaler, **(others or {})}.items() if thing is not None}
        kept = {*self.others, *(["scaler"] if self.scaler is not None else [])}
        if given != kept:
            raise UsageError(
                f"the checkpoint holds {_list(kept)} beside model and optimizer, and {_list(given)} is to be restored",
                hint="give what was given to the guard: scaler=..., others={...}",
            )
        model.load_state_dict(self.model)
        optimizer.load_state_dict(dict(self.optimizer))
        if scaler is not None and self.scaler is not None:
            scaler.load_state_dict(dict(self.scaler))
        for name, thing in (others or {}).items():
            thing.load_state_dict(self.others[name])
        set_all(self.random)
        return self.step


def save_checkpoint(
    path: str | os.PathLike[str],
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    step: int,
    scaler: torch.amp.GradScaler | None = None,
    others: Mapping[str, Stateful] | None = None,
) -> Path:
    """Write a checkpoint; until it is whole the former one stays. Takes no device memory.

    Raises:
        EnvironmentTrouble: it cannot be written.
        UsageError: a state holds what ``torch.load(weights_only=True)`` refuses.
    """
    content = {
        "autotune_checkpoint": _VERSION,
        "step": step,
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scaler": None if scaler is None else scaler.state_dict(),
        "others": {name: thing.state_dict() for name, thing in (others or {}).items()},
        "random": all_states(),
    }
    return write_whole(Path(path), lambda file: _write(content, file))


def load_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Read a checkpoint, its tensors on the CPU; nothing in it is executed.

    Raises:
        UsageError: there is none, or it is something else.
        EnvironmentTrouble: it cannot be read.
    """
    found = Path(path)
    try:
        content = torch.load(found, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise UsageError(
            f"there is no checkpoint {found}", hint="look at the name, or begin without: if path.exists(): ..."
        ) from error
    except OSError as error:
        if error.errno == errno.EINVAL:  # PyTorch's reader seeks to where the end of a cut-off file ought to be
            raise _no_checkpoint(found) from error
        raise EnvironmentTrouble(f"cannot read {found}: {error.strerror}", hint="look at its permissions") from error
    except (RuntimeError, EOFError, ValueError, KeyError, pickle.UnpicklingError) as error:
        raise _no_checkpoint(found) from error
    if not isinstance(content, dict) or content.keys() != _FIELDS or content["autotune_checkpoint"] != _VERSION:
        raise _no_checkpoint(found)
    return Checkpoint(**{name: content[name] for name in _FIELDS - {"autotune_checkpoint"}})


def check_place(path: Path) -> None:
    """Find out before an emergency whether a checkpoint can be written there; makes its folder.

    Raises:
        EnvironmentTrouble: it cannot.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _no_place(path, error.strerror or str(error)) from error
    if path.is_dir():
        raise _no_place(path, "it is a folder")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise _no_place(path, "its folder is write-protected")


def write_whole(path: Path, write: Callable[[Path], object]) -> Path:
    """Let ``write`` make a file in the same folder, flush it, and put it in the place of ``path``.

    Raises:
        EnvironmentTrouble: folder or disk refuse.
    """
    made = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_left_over(path)
        try:
            write(made)
            with made.open("rb+") as file:
                os.fsync(file.fileno())
            os.replace(made, path)
        finally:
            with suppress(FileNotFoundError):  # it is in its place
                made.unlink()
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # the new name itself
        finally:
            os.close(folder)
    except OSError as error:
        raise EnvironmentTrouble(
            f"cannot write the checkpoint {path}: {error.strerror or error}; an older one is as it was",
            hint="look at the disk's free space and the folder's permissions",
        ) from error
    return path


def _write(content: dict[str, Any], file: Path) -> None:
    with file.open("wb") as opened:  # PyTorch's own writer hides what the system says of a full disk
        try:
            torch.save(content, opened)
        except (pickle.PicklingError, AttributeError, TypeError) as error:  # a function, a lock, an open file
            raise _opaque(str(error)) from error
    try:
        torch.load(file, map_location="meta", weights_only=True, mmap=True)  # its structure alone
    except pickle.UnpicklingError as error:
        found = _REFUSED.search(str(error))
        raise _opaque(found[1] if found else str(error).strip().splitlines()[0]) from error


def _opaque(what: str) -> UsageError:
    return UsageError(
        "the checkpoint would hold an object that weights_only loading refuses, so it was not written; an older one"
        f" is as it was: {what}",
        hint="let state_dict() return numbers, texts, tensors and containers of them: float(x) of a NumPy number",
    )


def _no_place(path: Path, why: str) -> EnvironmentTrouble:
    return EnvironmentTrouble(
        f"no checkpoint can be written to {path}: {why}", hint="name another file: checkpoint=..."
    )


def _remove_left_over(path: Path) -> None:
    """Of writers that were killed."""
    for file in path.parent.glob(f".{path.name}.*.tmp"):
        number = file.name.removeprefix(f".{path.name}.").removesuffix(".tmp")
        if number.isdecimal() and not psutil.pid_exists(int(number)):
            file.unlink(missing_ok=True)


def _no_checkpoint(path: Path) -> UsageError:
    return UsageError(
        f"{path} is no checkpoint of an autotune guard, or is not whole",
        hint="give the path that was given as checkpoint=; files of other tools are read by torch.load",
    )


def _list(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"
