"""Fingerprint of a workload: equal when a former answer about it still holds. Child side, after loading."""

import hashlib
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from autotune.model import Source, digest, short_digest
from autotune.workload.places import is_installed
from autotune.workload.source import locate
from autotune.workload.task import Workload


def fingerprint(
    source: Source, workload: Workload, parameters: Iterable[tuple[str, tuple[int, ...], str]], batch: str
) -> str:
    """SHA-256 (hex) over the user's own code, its arguments, the model's parameters and a batch's shapes.

    Args:
        source: what was loaded.
        workload: what it was recognised as.
        parameters: (name, shape, dtype) of each, in the model's order.
        batch: a batch of a fixed size, described in words.

    The user's code is the file and every module below its folder or the working directory that is loaded by now; for
    live objects, the hash made when they were packed. Installed packages are the machine's business.
    """
    return digest(
        {
            "code": source.fingerprint or _local_code(source),
            "name": "" if source.pickle_path else locate(source).name,
            "arguments": list(source.script_args),
            "recognised": [[line.what, line.found] for line in workload.recognised],
            "parameters": [[name, list(shape), dtype] for name, shape, dtype in parameters],
            "batch": batch,
            "data_set_size": workload.data_set_size,
        }
    )


def fingerprint_parts(
    source: Source, workload: Workload, parameters: Iterable[tuple[str, tuple[int, ...], str]], batch: str
) -> tuple[tuple[str, str], ...]:
    """(what, short hash) of each thing that ``fingerprint`` hashes, with its arguments: which of them changed?"""
    code = [] if source.fingerprint else _local_code(source)
    recognised: dict[str, list[str]] = {}
    for line in workload.recognised:
        recognised.setdefault(line.what, []).append(line.found)
    return (
        *([("code", short_digest(source.fingerprint))] if source.fingerprint else code_parts(code)),
        ("reference", short_digest("" if source.pickle_path else locate(source).name)),
        ("arguments", short_digest(list(source.script_args))),
        *((what, short_digest(found)) for what, found in recognised.items()),
        ("parameters", short_digest([[name, list(shape), dtype] for name, shape, dtype in parameters])),
        ("shape of a batch", short_digest(batch)),
        ("size of the data set", short_digest(workload.data_set_size)),
    )


def code_parts(code: Sequence[Sequence[str]]) -> list[tuple[str, str]]:
    """Files and their hashes, as parts of a fingerprint."""
    return [(f"code of {name}", short_digest(content)) for name, content in code if content]


def _local_code(source: Source) -> list[list[str]]:
    """(path below the project, hash) of the user's loaded files, in a stable order."""
    file = locate(source).file
    folders = [Path(source.directory or os.getcwd())]
    return loaded_code(folders if file is None else [file.parent, *folders], file)


def loaded_code(folders: list[Path], file: Path | None) -> list[list[str]]:
    """(path below the first folder it lies in, hash) of what is loaded and not installed, in a stable order.

    Args:
        folders: the user's.
        file: one that counts whether it is loaded or not.
    """
    files = {os.path.abspath(path) for path in _loaded_files() if not is_installed(path)}
    if file is not None:
        files.add(str(file))
    return sorted([name, _hash(path)] for path in files if (name := _below(path, folders)))


def _loaded_files() -> list[str]:
    modules = [module for name, module in list(sys.modules.items()) if name != "__main__"]
    return [file for module in modules if isinstance(file := getattr(module, "__file__", None), str)]


def _below(path: str, folders: list[Path]) -> str:
    """The path relative to the first folder it lies in; empty if it lies in none."""
    for folder in folders:
        if Path(path).is_relative_to(folder):
            return Path(path).relative_to(folder).as_posix()
    return ""


def _hash(path: str) -> str:
    file = Path(path)
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else ""
