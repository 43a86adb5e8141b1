"""Command lines of processes that are started: fresh interpreters, and commands under a limit. Pure."""

import sys
from pathlib import Path


def interpreter(call: str) -> list[str]:
    """Command of a fresh interpreter running ``call``, finding autotune where this process found it.

    ``-P`` keeps the working directory off ``sys.path``, so that a user's ``json.py`` cannot replace ours.
    """
    root = str(Path(__file__).resolve().parents[2])
    return [sys.executable, "-P", "-c", f"import sys; sys.path.append({root!r}); {call}"]


def limited(command: tuple[str, ...], data_bytes: int) -> list[str]:
    """The command under a limit on its data segment, for programs that nothing can be set in from within."""
    call = (
        "import os, resource, sys; hard = resource.getrlimit(resource.RLIMIT_DATA)[1]; "
        f"resource.setrlimit(resource.RLIMIT_DATA, ({data_bytes}, hard)); os.execvp(sys.argv[1], sys.argv[1:])"
    )
    return [sys.executable, "-I", "-S", "-c", call, *command]
