"""One probe per device at a time, across processes and users of a host: a lock that ends with its process.

Two files a device stand in one folder that all users share, ``/tmp`` unless ``AUTOTUNE_LOCK_DIR`` names another. Not
``TMPDIR``, which batch systems set for each job, nor ``XDG_RUNTIME_DIR``, which is each user's own: both would part those
who must meet. Nothing is ever written into them, and only who made one may (mode 0644): ``flock`` is content with a
descriptor opened for reading, so another user's file serves as well as one's own. filelock opens for writing, which that
user's file refuses, and its older versions open with ``O_CREAT``, which Linux refuses in ``/tmp`` for files of others
(``fs.protected_regular``). Symbolic links are not followed.

Who holds the lock says so in a third file of its own, which is made anew and moved into place, so that no link that
somebody left there is written through. Whose word it is the kernel says: the owner of the file. All else in it is read as
data. The sticky bit of the folder keeps users from removing each other's files.

The lock is good manners, no safety: what it cannot prevent, ``tenants`` notices.
"""

import contextlib
import errno
import fcntl
import json
import os
import re
import stat
import sys
import tempfile
import time
import weakref
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import psutil

from autotune.masked import without_secrets

FOLDER_VARIABLE = "AUTOTUNE_LOCK_DIR"
_FOLDER = "/tmp"
_NOTE_LIMIT_BYTES = 4096
_TEXT_LIMIT = 200
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""For files that anybody may have laid: without O_NONBLOCK a pipe would hang."""
_UNPRINTABLE = re.compile(r"[^\x20-\x7e\xa0-\ud7ff\ue000-\U0010ffff]")
"""Control characters, and halves of characters, which no encoding can write."""
_SAME_START_S = 1.0
"""Start times of one process, read twice, differ by less: the clock behind them is adjusted now and then."""


def lock_folder() -> Path:
    """Where the files are."""
    return Path(os.environ.get(FOLDER_VARIABLE) or _FOLDER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who says that it holds a lock. But for ``user`` that is what it says of itself."""

    user: str
    """Owner of the file that says so: a name, or a number where it has none here."""
    pid: int
    command: str
    """Printable, at most 200 characters, secrets masked by who wrote it."""
    host: str
    since: datetime

    @property
    def text(self) -> str:
        """``anna (pid 312, `autotune search model.py`, since 10:20:31 UTC)``."""
        return f"{self.user} (pid {self.pid}, `{self.command}`, since {self.since:%H:%M:%S} UTC)"


class DeviceLock:
    """The lock of one device; not held when made. One object is for one use at a time."""

    def __init__(self, key: str, folder: Path | None = None) -> None:
        """
        Args:
            key: names the device; characters that file names may not have are replaced.
            folder: None = that of all users.
        """
        self._folder = folder or lock_folder()
        self._name = f"autotune-device-{re.sub(r'[^A-Za-z0-9._-]', '_', key)}"
        self._queue = _Flock(self._folder / f"{self._name}.queue")
        self._device = _Flock(self._folder / f"{self._name}.lock")
        self._note = self._folder / f"{self._name}.{os.getuid()}"

    def take(self) -> bool:
        """Try once, at once; True if the device is ours now. What is asked again and again keeps its place in the queue.

        The queue is a lock as well, held only while its holder waits for the device: who has just let go of the device
        comes behind whoever waits, instead of taking it again before that one looks.

        Raises:
            OSError: there can be no lock here: no such folder, a link or a directory in its place, a file system without.
        """
        if not self._queue.take() or not self._device.take():
            return False
        self._queue.release()
        with contextlib.suppress(OSError):  # the lock holds without it; others then see only that it is held
            self._say()
        return True

    def held_by(self) -> Holder | None:
        """Who holds it now, for those who only look; None where nobody does, or nobody says so.

        Makes no file and takes no turn. The lock itself is asked only about somebody's word that it is held, so that a
        free one is never in the way of who takes it.

        Raises:
            OSError: that cannot be told here: a link or a directory in its place, a file system without locks.
        """
        holder = self.holder()
        return holder if holder is not None and (self._device.held or self._device.is_taken()) else None

    def release(self) -> None:
        """Let go of the device, or of the place in the queue. Calling it twice is fine."""
        if self._device.held:
            with contextlib.suppress(OSError):  # somebody cleaned the folder up
                self._note.unlink()
        self._device.release()
        self._queue.release()

    def holder(self) -> Holder | None:
        """The newest word of a process that still lives; None where nobody says anything."""
        found = [_read_note(path) for path in sorted(self._folder.glob(f"{self._name}.*")) if path.suffix[1:].isdigit()]
        return max((holder for holder in found if holder is not None), key=lambda holder: holder.since, default=None)

    def _say(self) -> None:
        started = psutil.Process().create_time()
        words = " ".join([os.path.basename(sys.argv[0] or "python"), *sys.argv[1:]])
        content = {
            "pid": os.getpid(),
            "started": started,
            "command": without_secrets(words)[:_TEXT_LIMIT],
            "host": this_host(),
            "since": time.time(),
        }
        descriptor, path = tempfile.mkstemp(prefix=f"{self._name}.", suffix=".new", dir=self._folder)
        try:
            with os.fdopen(descriptor, "w") as file:
                os.fchmod(descriptor, 0o644)
                json.dump(content, file)
            os.replace(path, self._note)
        except OSError:
            os.unlink(path)
            raise


class _Flock:
    """One file, locked as a whole for one open descriptor; the kernel lets go when that is closed, however."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None
        _alive.add(self)

    @property
    def held(self) -> bool:
        return self._descriptor is not None

    def take(self) -> bool:
        """Try once.

        Raises:
            OSError: the file cannot be opened, is none, or cannot be locked.
        """
        if self._descriptor is not None:
            return True
        descriptor = self._open()
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # It may have been removed between opening and locking, and then others lock another one of that name.
            if os.path.samestat(os.fstat(descriptor), os.stat(self._path, follow_symlinks=False)):
                self._descriptor = descriptor
        except (BlockingIOError, FileNotFoundError):
            return False
        finally:
            if self._descriptor is None:
                os.close(descriptor)
        return self._descriptor is not None

    def is_taken(self) -> bool:
        """Whether another descriptor holds it, by trying to share it.

        Raises:
            OSError: as ``take``.
        """
        try:
            descriptor = os.open(self._path, _FLAGS)
        except FileNotFoundError:
            return False
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(errno.EINVAL, "is no regular file", str(self._path))
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)

    def release(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # a fork of this process may have a copy of the descriptor
            os.close(descriptor)

    def forget(self) -> None:
        """In a fork: the lock is the parent's, and must end with it."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def _open(self) -> int:
        try:
            descriptor = os.open(self._path, _FLAGS)
        except FileNotFoundError:
            try:
                descriptor = os.open(self._path, _FLAGS | os.O_CREAT | os.O_EXCL, 0o644)
                os.fchmod(descriptor, 0o644)  # whatever the umask: others must be able to open it
            except FileExistsError:
                descriptor = os.open(self._path, _FLAGS)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError(errno.EINVAL, "is no regular file", str(self._path))
        return descriptor


_alive: "weakref.WeakSet[_Flock]" = weakref.WeakSet()


def _in_a_fork() -> None:
    for lock in list(_alive):
        lock.forget()


os.register_at_fork(after_in_child=_in_a_fork)


def _read_note(path: Path) -> Holder | None:
    """What a holder says of itself; None if it is not there, not theirs, in another form, or of a process that has ended."""
    try:
        descriptor = os.open(path, _FLAGS)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or str(status.st_uid) != path.suffix[1:]:
                return None
            said = json.loads(file.read(_NOTE_LIMIT_BYTES))
            pid, started, since = int(said["pid"]), float(said["started"]), float(said["since"])
            command, host = (printable(str(said[name]))[:_TEXT_LIMIT] for name in ("command", "host"))
            when = datetime.fromtimestamp(since, UTC)
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        OverflowError,
        RecursionError,
    ):  # anybody may write anything there
        return None
    if host == this_host() and not lives(pid, started):
        return None
    return Holder(user=user_of(status.st_uid), pid=pid, command=command, host=host, since=when)


def printable(text: str) -> str:
    """Text of others on one line of a terminal: every control character is a question mark."""
    return _UNPRINTABLE.sub("?", text)


def lives(pid: int, started: float) -> bool:
    """Whether that very process is there; what may not be asked of it counts as yes."""
    try:
        return abs(psutil.Process(pid).create_time() - started) < _SAME_START_S
    except psutil.AccessDenied:
        return True
    except (psutil.Error, ValueError, OverflowError):
        return False


def this_host() -> str:
    """This host, or this container, since process ids mean something only within one."""
    with contextlib.suppress(OSError):  # not Linux
        return f"{os.uname().nodename} {os.readlink('/proc/self/ns/pid')}"
    return os.uname().nodename


def user_of(uid: int) -> str:
    import pwd

    try:
        return printable(pwd.getpwuid(uid).pw_name)
    except KeyError:
        return f"user {uid}"
