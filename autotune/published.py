"""Files in which guarded trainings tell of themselves, for ``autotune watch``: where they are, and how they stay whole.

Each user has a private folder beside the locks of devices: in ``/tmp``, unless ``AUTOTUNE_LOCK_DIR`` names another folder,
which containers can share. Not ``XDG_RUNTIME_DIR``: cron, batch jobs and containers lack it, and it is emptied when its
user logs out though the training goes on. Not the home directory either: it may lie on a network, for which a training
would have to wait. ``AUTOTUNE_STATUS_DIR`` names one folder instead of all that; empty, nothing is published.

Files are read and written below the descriptor of a folder that was looked at, so that nobody who can put links into
``/tmp`` leads them elsewhere. What is in them is not looked at here. No torch.
"""

import contextlib
import errno
import os
import re
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from autotune.probe.device_lock import lock_folder

FOLDER_VARIABLE = "AUTOTUNE_STATUS_DIR"
_PREFIX = "autotune-trainings-"
_NAME = re.compile(r"\.?[A-Za-z0-9-]{1,80}\.json")
"""The dot is that of a draft."""
_LIMIT_BYTES = 8192
_MOST_FILES = 1000
"""In one folder: whose it is may put there what they like."""
_DRAFT_S = 3600.0
"""A draft older than this was left by a process that was killed while it wrote."""
_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Written:
    """One file."""

    folder: Path
    name: str
    uid: int
    """Whose word it is."""
    data: bytes | None
    """None: it cannot be read, or is no file of a training's size."""


def own_folder() -> Path | None:
    """Where trainings of this user publish; None = nowhere, as the variable says."""
    told = os.environ.get(FOLDER_VARIABLE)
    if told is not None:
        return Path(told) if told else None
    return lock_folder() / f"{_PREFIX}{os.geteuid()}"


def write(folder: Path, name: str, data: bytes) -> None:
    """Put a file in the place of the one of that name, readable for nobody else; a reader sees the old one or the new.

    Raises:
        OSError: it cannot be written; the folder is somebody else's, or others may write to it; what it is in is missing.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    with _opened(folder) as (descriptor, status):
        if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise PermissionError(errno.EPERM, "belongs to somebody else, or others may write to it", str(folder))
        draft = f".{name}"
        file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _FLAGS, 0o600, dir_fd=descriptor)
        try:
            with os.fdopen(file, "wb") as stream:
                stream.write(data)
            os.replace(draft, name, src_dir_fd=descriptor, dst_dir_fd=descriptor)
        except OSError:
            with contextlib.suppress(OSError):  # the first trouble is the one to tell
                os.unlink(draft, dir_fd=descriptor)
            raise


def remove(folder: Path, name: str) -> None:
    """Remove a file, if it is there and may be removed: who reads it finds out by itself that nobody writes it any more."""
    with contextlib.suppress(OSError), _opened(folder) as (descriptor, _):
        os.unlink(name, dir_fd=descriptor)


def read() -> Iterator[Written]:
    """All files that this user may read, one folder after the other; drafts that were left behind are removed."""
    told = os.environ.get(FOLDER_VARIABLE)
    if told is not None:
        yield from _read(Path(told), None) if told else ()
        return
    for folder in sorted(lock_folder().glob(f"{_PREFIX}*")):
        uid = folder.name.removeprefix(_PREFIX)
        if uid.isdecimal():
            yield from _read(folder, int(uid))


def _read(folder: Path, uid: int | None) -> Iterator[Written]:
    try:
        with _opened(folder) as (descriptor, status):
            if uid is not None and status.st_uid != uid:  # made by somebody for another's name
                return
            found = [name for name in sorted(os.listdir(descriptor))[:_MOST_FILES] if _NAME.fullmatch(name)]
            for name in found:
                if name.startswith("."):
                    _remove_left_over(descriptor, name)
                    continue
                with contextlib.suppress(FileNotFoundError):  # the training ended meanwhile
                    yield Written(folder, name, status.st_uid, _content(descriptor, name, status.st_uid))
    except OSError:  # another user's, which is private; none there yet; or no folder
        return


def _content(folder: int, name: str, uid: int) -> bytes | None:
    try:
        descriptor = os.open(name, os.O_RDONLY | _FLAGS, dir_fd=folder)
    except FileNotFoundError:
        raise
    except OSError:  # a link, or a file that we may not read
        return None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != uid or status.st_size > _LIMIT_BYTES:
            return None
        return os.read(descriptor, _LIMIT_BYTES)
    finally:
        os.close(descriptor)


def _remove_left_over(folder: int, name: str) -> None:
    with contextlib.suppress(OSError):  # it has become the file meanwhile, or is somebody else's
        if time.time() - os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime > _DRAFT_S:
            os.unlink(name, dir_fd=folder)


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[tuple[int, os.stat_result]]:
    """A descriptor of the folder itself, and what it is; links are not followed.

    Raises:
        OSError: there is none, or it may not be entered.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | _FLAGS)
    try:
        yield descriptor, os.fstat(descriptor)
    finally:
        os.close(descriptor)
