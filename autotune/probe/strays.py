"""Descendants of the guardian that are nobody's job any more: orphans come to it, wherever they moved (see ``linux``)."""

import contextlib
import time
from collections.abc import Collection

import psutil

from autotune.probe.job import kill, reap

KILL_GRACE_S = 2.0
"""For a killed process to be reapable; one that something traces or holds is given up after it."""


def kill_strays(keep: Collection[int]) -> None:
    """Kill every descendant of this process but the trees of these children, then reap what can be.

    All are killed before any is waited for: one may trace another, and a chain of forks only dies when it is
    overtaken.
    """
    killed: set[int] = set()
    deadline = time.monotonic() + KILL_GRACE_S
    while time.monotonic() < deadline:
        strays = _strays(keep)
        fresh = {stray.pid for stray in strays} - killed
        for stray in strays:
            kill(stray.pid)
        killed |= fresh
        for stray in strays:
            reap(stray.pid)
        if not strays:
            break
        if not fresh:
            time.sleep(0.005)


def _strays(keep: Collection[int]) -> list[psutil.Process]:
    strays = []
    for child in psutil.Process().children():
        if child.pid in keep:
            continue
        with contextlib.suppress(psutil.NoSuchProcess):
            strays += child.children(recursive=True)
        strays.append(child)
    return strays


def reap_strays(zygote: int) -> None:
    """Reap orphans handed to this process, leaving the zygote's status to its owner."""
    for child in psutil.Process().children():
        if child.pid != zygote:
            reap(child.pid)
