"""``autotune`` as ever, with ``reached`` called around what the tool does: ``python -m tests.faults.driver ARGS``."""

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection, Engine, event
from sqlalchemy.orm import Session

import autotune.storage.engine
import autotune.storage.schema
from autotune.cli import asking, write
from autotune.cli.app import main
from autotune.probe.guarded import Guarded
from autotune.probe.launcher import Launcher
from autotune.storage.store import Store
from tests.faults.striking import reached

STEPS = {
    "guardian": (Guarded, "start"),
    "send": (Guarded, "send"),
    "report": (Guarded, "wait"),
    "preload": (Launcher, "preload"),
    "describe": (Launcher, "describe"),
    "probe": (Launcher, "probe"),
    "close": (Launcher, "close"),
    "open": (Store, "open"),
    "begin": (Store, "begin"),
    "reopen": (Store, "reopen"),
    "add": (Store, "add_probe"),
    "finish": (Store, "finish"),
    "keep": (asking, "keep"),
}
"""What there is a point before and after of, named ``add: before`` and ``add: after``."""


def watch(owner: Any, name: str, step: str) -> None:
    """Put points around a function."""
    original: Callable[..., Any] = getattr(owner, name)

    def watched(*args: Any, **kwargs: Any) -> Any:
        reached(f"{step}: before")
        result = original(*args, **kwargs)
        reached(f"{step}: after")
        return result

    is_bound = hasattr(original, "__self__")  # a class method, which knows its class
    setattr(owner, name, staticmethod(watched) if is_bound else watched)


def watch_transactions() -> None:
    """Points in a transaction that writes: all is said and nothing committed; committed and not yet let go."""

    def uncommitted(connection: Connection) -> None:
        if connection.get_execution_options().get("autotune_writes"):
            reached("uncommitted")

    event.listen(Engine, "commit", uncommitted)
    event.listen(Session, "after_commit", lambda session: reached("committed"))


def watch_document() -> None:
    """Points while the recommendation is written: the draft is about to be made, written, has taken the file's place."""
    beside, fsync = write._beside, os.fsync

    def about_to_write(target: Any, purpose: str) -> Any:
        if purpose == "tmp":
            reached("document: begin")
        return beside(target, purpose)

    def written(fd: Any) -> None:
        reached("document: written")
        fsync(fd)
        reached("document: on disk")

    write._beside = about_to_write
    os.fsync = written


def install(*, afresh: bool, ahead: bool) -> None:
    """Put all points in place.

    Args:
        afresh: whether the probe that certifies starts a fresh interpreter, as on the CPU it does.
        ahead: whether the zygote makes the model while the first child works, as on CUDA it does.
    """
    for step, (owner, name) in STEPS.items():
        watch(owner, name, step)
    watch_transactions()
    watch_document()
    Launcher._certifies_afresh = afresh
    Launcher._ahead = ahead
    autotune.storage.engine.BUSY_TIMEOUT_MS = 500  # another process that keeps the lock keeps it for good


if __name__ == "__main__":
    words = sys.argv[1].split(",")
    del sys.argv[1]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)  # whoever runs the tests in the background may have them ignored
    signal.signal(signal.SIGINT, signal.default_int_handler)
    install(afresh="afresh" in words, ahead="ahead" in words)
    main()
