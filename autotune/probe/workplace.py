"""Folders for working files: private, removed at the end, and swept by a later search where nobody lived to do that.

Whoever makes one holds a lock on it that the kernel lets go when that process is gone, however it went. So a folder that
can be locked belongs to nobody any more, also where process ids mean nothing (containers that share a file system).
"""

import contextlib
import os
import shutil
import sys
import tempfile
from pathlib import Path
from types import TracebackType

from autotune.errors import EnvironmentTrouble

if sys.platform != "win32":
    import fcntl

_PREFIX = "autotune-"
_UNFINISHED = ".autotune-"
"""A folder has this name until it is locked and marked, so that nobody sweeps it before."""
_MARK = ".workplace"
"""File that tells such a folder from one of another's that happens to have its name."""
_MAKE_ROOM = "free disk space there, or set TMPDIR to a folder that has some"


class Workplace:
    """A new folder that only this user may enter."""

    def __init__(self) -> None:
        """
        Raises:
            EnvironmentTrouble: there is no room for one, or no place.
        """
        self._lock: int | None = None
        try:
            _sweep()
            made = Path(tempfile.mkdtemp(prefix=_UNFINISHED))
            with contextlib.suppress(OSError):  # a file system without such locks, where nothing is swept either
                self._lock = _locked(made)
            (made / _MARK).touch()
            self.path = made.with_name(_PREFIX + made.name.removeprefix(_UNFINISHED))
            made.rename(self.path)
        except OSError as error:
            raise EnvironmentTrouble(
                f"no folder for working files can be made: {error.strerror or error}", hint=_MAKE_ROOM
            ) from error

    def __enter__(self) -> Path:
        return self.path

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    def remove(self) -> None:
        """Remove it with all that is in it; a second time does nothing."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def write_working_file(path: Path, text: str) -> None:
    """Write a file of a workplace.

    Raises:
        EnvironmentTrouble: the disk is full.
    """
    try:
        path.write_text(text)
    except OSError as error:
        raise EnvironmentTrouble(f"cannot write {path}: {error.strerror}", hint=_MAKE_ROOM) from error


def _sweep() -> None:
    """Remove what searches of this user left that were killed before there was anybody to clean up after them."""
    for mark in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/{_MARK}"):
        with contextlib.suppress(OSError):  # somebody else's, in use, or swept by another search meanwhile
            lock = _locked(mark.parent)
            if lock is None:
                return
            try:
                if os.fstat(lock).st_uid == os.geteuid():
                    shutil.rmtree(mark.parent, ignore_errors=True)
            finally:
                os.close(lock)


def _locked(folder: Path) -> int | None:
    """A descriptor that holds the lock of a folder; None on a system that has no such locks.

    Raises:
        OSError: another process holds it, or it is no folder of ours.
    """
    if sys.platform == "win32":
        return None
    folder_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(folder_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(folder_fd)
        raise
    return folder_fd
