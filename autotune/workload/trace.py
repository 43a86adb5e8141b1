"""The user's own traceback: frames of autotune and of the import machinery left out."""

import traceback

from autotune.workload.places import OWN


def user_traceback(error: BaseException) -> str:
    """Text of an exception and what led to it, as Python would print it for the user's program alone."""
    told = traceback.TracebackException.from_exception(error)
    frames = _prune(told)
    return "".join(told.format() if frames else told.format_exception_only()).rstrip()


def _prune(told: traceback.TracebackException) -> int:
    """Drop foreign frames from an exception and everything chained to it; return how many are left in all."""
    told.stack[:] = [frame for frame in told.stack if not _is_foreign(frame.filename)]
    chained = [told.__cause__, told.__context__, *(told.exceptions or ())]
    return len(told.stack) + sum(_prune(other) for other in chained if other is not None)


def _is_foreign(filename: str) -> bool:
    return filename.startswith((OWN, "<frozen importlib"))
