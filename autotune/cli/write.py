"""``autotune.json`` on disk: whole or not at all, and never an old one that looks fresh."""

import os
import platform
import stat
from contextlib import suppress
from pathlib import Path

from autotune.errors import EnvironmentTrouble, UsageError

_DRAFT = "tmp"
_MODE = 0o664
"""Of a new file, less the umask."""


def check_writable(path: Path) -> None:
    """Find out before a long search that its result can be written; leaves nothing behind.

    Raises:
        UsageError: it cannot, and why.
    """
    target = _target(path)
    if target.exists() and not target.is_file():
        raise UsageError(
            f"{path} is not a regular file, so that nothing can be written there",
            hint="name a file, or use --json to get the document on stdout",
        )
    if target.exists() and not os.access(target, os.W_OK):
        raise UsageError(f"{path} is write-protected", hint="name another file with --output")
    trial = _beside(target, "check")
    try:
        trial.touch(exist_ok=False)
        trial.unlink()
    except OSError as error:
        raise UsageError(
            f"cannot write {path}: {error.strerror}", hint="name a file in a folder that exists and can be written"
        ) from error


def write_whole(path: Path, text: str) -> None:
    """Write so that a reader sees the old file or the new one, also after a power cut.

    Raises:
        EnvironmentTrouble: the disk is full, the folder is gone.
    """
    target = _target(path)
    _sweep(target)
    draft = _beside(target, _DRAFT)
    try:
        try:
            with open(draft, "x", encoding="utf-8", opener=not_for_all) as stream:
                _keep_mode(target, stream.fileno())
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
            draft.replace(target)
        finally:
            with suppress(FileNotFoundError):  # the ordinary case: it has become the target
                draft.unlink()
    except OSError as error:
        raise EnvironmentTrouble(
            f"cannot write {path}: {error.strerror}",
            hint="the answer is kept: make room, then run the same command again",
        ) from error


def set_aside(path: Path) -> Path | None:
    """Move an older recommendation to ``<name>.stale``; returns its new place, None if there was no file.

    Raises:
        EnvironmentTrouble: it cannot be moved.
    """
    stale = path.with_name(path.name + ".stale")
    try:
        path.replace(stale)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise EnvironmentTrouble(
            f"{path} no longer holds, and cannot be moved aside: {error.strerror}", hint=f"remove {path} by hand"
        ) from error
    return stale


def _target(path: Path) -> Path:
    """What a symbolic link points to, so that the link itself stays."""
    return Path(os.path.realpath(path))


def _keep_mode(target: Path, draft: int) -> None:
    """Give a draft the permissions that the owner of the file has set."""
    with suppress(OSError):  # a new file, or a file system without permissions
        os.fchmod(draft, stat.S_IMODE(target.stat().st_mode))


def not_for_all(path: str, flags: int) -> int:
    """For ``open(opener=...)``: a new file that not everybody may write, whatever the umask."""
    return os.open(path, flags, _MODE)


def _beside(target: Path, purpose: str) -> Path:
    """A hidden file that names who makes it: several processes, of several hosts, may write the same target."""
    return target.with_name(f"{_hidden(target)}{os.getpid()}.{purpose}")


def _hidden(target: Path) -> str:
    return f".{target.name}.{platform.node()}."


def _sweep(target: Path) -> None:
    """Remove drafts of processes of this host that were killed while they wrote."""
    import psutil

    begin, end = _hidden(target), f".{_DRAFT}"
    with suppress(OSError):  # a folder that cannot be listed, a draft that another process sweeps or that is not ours
        for name in os.listdir(target.parent):
            pid = name.removeprefix(begin).removesuffix(end)
            if name == f"{begin}{pid}{end}" and pid.isdecimal() and not psutil.pid_exists(int(pid)):
                target.with_name(name).unlink()
