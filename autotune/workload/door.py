"""Where the user's code is run at load time, and whatever it does to end that becomes a ``WorkloadError``."""

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from autotune.errors import AutotuneError, WorkloadError
from autotune.workload.trace import user_traceback

_NO_DEVICE = ("not compiled with cuda enabled", "found no nvidia driver", "no cuda gpus are available")
"""What PyTorch says, in lower case, to code that moves a model to a device that is not there."""
_GUARD = 'under `if __name__ == "__main__":`'


@contextmanager
def door(what: str, doing: str = "loading it") -> Iterator[None]:
    """Run the user's code inside.

    Args:
        what: the file, as the user wrote it.
        doing: what autotune does meanwhile, for the message.

    Raises:
        WorkloadError: the code raised or called ``sys.exit``; ``detail`` is the user's own traceback.
    """
    try:
        yield
    except AutotuneError:
        raise
    except SystemExit as error:
        code = "" if error.code is None else repr(error.code)
        said = _said_by_argparse(error)
        raise WorkloadError(
            f"{what} called sys.exit({code}) while autotune was {doing}" + (f": {said}" if said else ""),
            hint=_exit_hint(said),
            detail=user_traceback(error),
        ) from error
    except Exception as error:
        first_line = next(iter(str(error).splitlines()), "")
        raise WorkloadError(
            f"{what} raised {type(error).__name__} while autotune was {doing}: {first_line}",
            hint=_hint(error, what),
            detail=user_traceback(error),
        ) from error


def _said_by_argparse(error: SystemExit) -> str:
    """What a parser of arguments did not like, which it prints and does not raise; empty if it was none."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__) if frame.f_code.co_name == "error"]
    messages = [frame.f_locals.get("message", "") for frame in frames if frame.f_globals["__name__"] == "argparse"]
    return str(next(iter(messages), ""))


def _exit_hint(said_by_argparse: str) -> str:
    if said_by_argparse:
        return f"give the file its arguments after `--`, or parse them {_GUARD}"
    return f"put the part that runs the program {_GUARD}"


def _hint(error: Exception, what: str) -> str:
    if isinstance(error, SyntaxError):
        return f"correct line {error.lineno} of {error.filename}"
    if isinstance(error, ImportError) and "relative import" in str(error):
        return _package_hint(Path(what).with_suffix("").parts)
    if isinstance(error, ModuleNotFoundError) and error.name:
        return _missing_hint(error.name)
    if any(text in str(error).lower() for text in _NO_DEVICE):
        return "return the model on the CPU: autotune moves it to the device"
    return "running the file with python shows the same error; what only training needs belongs " + _GUARD


def _package_hint(parts: tuple[str, ...]) -> str:
    """``parts`` of the file's path."""
    if len(parts) > 1 and all(part.isidentifier() for part in parts):
        return f"it is part of a package: name it as a module, {'.'.join(parts)}"
    return f"it is part of a package: name it as a module, from the folder that the package is in: PACKAGE.{parts[-1]}"


def _missing_hint(module: str) -> str:
    top = module.partition(".")[0]
    if top in sys.modules:
        return f"{top} is there, and has no {module.partition('.')[2]}: look at its version"
    if os.path.exists(f"{top}.py") or os.path.isdir(top):
        return f"{top} lies in the working directory, which is not searched: set PYTHONPATH=."
    return f"install it here: {sys.executable} -m pip install {top.replace('_', '-')}"
