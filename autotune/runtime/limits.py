"""How much of the device a guarded training may use, as the user says it."""

from autotune.errors import UsageError
from autotune.units import parse_bytes

Limit = int | float | str
"""Bytes, ``"24GiB"``, ``"90%"``, or a share of the capacity above 0 and up to 1."""


def read_limit(limit: Limit | None) -> tuple[int | None, float | None]:
    """(bytes, None), (None, share of the capacity), or (None, None) where nothing is said.

    Raises:
        UsageError: it is neither.
    """
    if limit is None:
        return None, None
    if isinstance(limit, str):
        text = limit.strip()
        if text.endswith("%"):
            return None, _share(limit, text[:-1])
        try:
            return parse_bytes(text), None
        except ValueError as error:
            raise _no_limit(limit) from error
    if isinstance(limit, bool):
        raise _no_limit(limit)
    if isinstance(limit, int) and limit > 1:
        return limit, None
    if 0 < limit <= 1:
        return None, float(limit)
    raise _no_limit(limit)


def _share(limit: str, percent: str) -> float:
    try:
        share = float(percent) / 100
    except ValueError as error:
        raise _no_limit(limit) from error
    if not 0 < share <= 1:
        raise _no_limit(limit)
    return share


def _no_limit(limit: object) -> UsageError:
    return UsageError(f"limit={limit!r} is no limit", hint="give bytes, '24GiB', '90%', or a share such as 0.9")
