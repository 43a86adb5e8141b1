"""From a command line to an exit code: the only place that prints errors and the only one that exits.

Exit codes: 0 ok, 1 unexpected, 2 usage, 3 nothing fits, 4 the workload itself fails, 5 environment trouble,
6 check failed, 124 time ran out with no result, 130 and 143 interrupted, 141 nobody reads stdout any more.
"""

import errno
import os
import select
import signal
import sys
import traceback
from collections.abc import Sequence
from io import TextIOWrapper
from typing import NoReturn

from autotune.cli.invocation import Invocation
from autotune.cli.signals import StdoutClosed, Stopped, stoppable
from autotune.errors import AutotuneError, EnvironmentTrouble, Interrupted

PROGRAM = "autotune"
_CODE_BUG = 1
_CODE_STDOUT_CLOSED = 141  # what shells report of a program that died of SIGPIPE
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_STDOUT = 1


def main(program: str = PROGRAM) -> NoReturn:
    """Entry point of the command; exits."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # before and after ``run``: an end without a traceback
    _open_standard_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a name that the encoding lacks must not end a search
    sys.exit(run(sys.argv[1:], program))


def _open_standard_streams() -> None:
    """Open those that the caller closed (``>&-``) on nothing: else the next file, such as the ledger, would take their
    number, and children would write into it."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free, this one
            os.set_inheritable(number, True)
            mode = "r" if number == 0 else "w"
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 - as long as the program


def run(argv: Sequence[str], program: str = PROGRAM) -> int:
    """Run one command line; returns its exit code. Errors are on stderr by then.

    Args:
        argv: arguments without the program's name.
        program: how the user started it, for usage lines and for the command that resumes a search.
    """
    with stoppable():
        try:
            return _run(argv, program)
        except (Stopped, KeyboardInterrupt) as stop:
            name, code = (stop.name, stop.exit_code) if isinstance(stop, Stopped) else ("SIGINT", 130)
            return _failed(Interrupted(f"stopped by {name}", exit_code=code), argv)


def _run(argv: Sequence[str], program: str) -> int:
    try:
        from autotune.cli.commands import invoke  # most of what the program is: signals are heeded by now

        code = invoke(argv, program)
        sys.stdout.flush()
        return code
    except AutotuneError as error:
        return _failed(error, argv)
    except StdoutClosed:
        return _nobody_reads()
    except Exception as error:  # noqa: BLE001 - the edge of the program: whatever comes here is a bug, and is shown whole
        if isinstance(error, BrokenPipeError) and _stdout_is_closed():
            return _nobody_reads()
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            _nobody_reads()  # what is left would be written at exit
            hint = "make room on the disk: df -h"
            return _failed(EnvironmentTrouble(f"cannot write: {error.strerror}", hint=hint), argv)
        _complain(
            f"this is a bug in autotune: {type(error).__name__}: {error}",
            detail="".join(traceback.format_exception(error)).rstrip("\n"),
            hint="please report it with the text above and the command line",
        )
        return _CODE_BUG


def _failed(error: AutotuneError, argv: Sequence[str]) -> int:
    """Tell an error, under ``--json`` as a document on stdout too; returns its exit code."""
    from autotune.cli.console import Screen
    from autotune.cli.failure import failure_text

    notes: list[str] = getattr(error, "__notes__", [])
    try:
        if "--json" in Invocation(PROGRAM, tuple(argv)).own:
            Screen(stderr=False).say(error.document or failure_text(error, argv))
    except (StdoutClosed, OSError):
        _nobody_reads()  # the exit code is still that of the error
    _complain(error.message, detail="\n".join([error.detail, *notes]).strip("\n"), hint=error.hint)
    return error.exit_code


def _complain(message: str, *, detail: str = "", hint: str = "") -> None:
    from autotune.cli.console import Screen

    screen = Screen(stderr=True)
    screen.say(f"error: {message}", "bold red")
    if detail:
        screen.say(detail)
    if hint:
        screen.say(f"hint: {hint}", "bold")


def _nobody_reads() -> int:
    """Let the interpreter flush what is left into nothing."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), _STDOUT)
    return _CODE_STDOUT_CLOSED


def _stdout_is_closed() -> bool:
    """Whether it was stdout that broke (help written by typer), and not some pipe of autotune's own."""
    if not hasattr(select, "poll"):
        return False  # Windows, where a closed pipe is another error
    watch = select.poll()
    watch.register(_STDOUT, 0)  # errors are reported without being asked for
    return bool(watch.poll(0))
