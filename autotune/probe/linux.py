"""The few Linux calls that keep a process tree under control. Each is a no-op elsewhere and says so by its result."""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
IS_LINUX = sys.platform == "linux"


def _prctl(option: int, value: int) -> bool:
    if not IS_LINUX:
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    return int(libc.prctl(option, value, 0, 0, 0)) == 0


def become_subreaper() -> bool:
    """Adopt orphaned descendants, whatever session they moved to (prctl(2), PR_SET_CHILD_SUBREAPER)."""
    return _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when ``parent`` dies; exit at once if it is dead already."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
