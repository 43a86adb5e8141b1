"""Whether a process may be forked into others that compute and start the device, and what keeps it so. Torch, Linux."""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from autotune.probe import linux


def why_fork_is_unsafe() -> str:
    """Empty if nothing seen in this process speaks against forking it; else the reason, for the user.

    Python threads and an initialised device are known to break in a forked child. Native thread pools may or may not
    (an OpenMP pool that was used hangs, OpenBLAS restarts its own), and a driver may have been started behind torch's
    back: that is found out by the first child (``describe``).
    """
    if not linux.IS_LINUX:
        return f"forking is not safe on {sys.platform}"
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return "the file starts CUDA while it is imported"
    others = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    if others:
        return f"the file starts threads while it is imported ({', '.join(others)})"
    return ""


def tasks() -> int:
    """Threads of this process, native ones included."""
    return len(os.listdir("/proc/self/task"))


@contextmanager
def cuda_refused() -> Iterator[list[str]]:
    """Have every attempt to start CUDA raise, as it does in a child of a process that has started it.

    Yields:
        One entry for each attempt: the code inside may have caught the exception and gone another way.
    """
    attempts: list[str] = []
    start = torch.cuda._lazy_init.__code__
    in_bad_fork = torch.cuda._is_in_bad_fork

    def refuse() -> bool:
        asking = sys._getframe(1)
        if asking.f_code is not start:  # torch.manual_seed asks as well, and seeds only if this is a good fork
            return bool(in_bad_fork())
        attempts.append(asking.f_code.co_name)
        return True

    torch.cuda._is_in_bad_fork = refuse
    try:
        yield attempts
    finally:
        torch.cuda._is_in_bad_fork = in_bad_fork
