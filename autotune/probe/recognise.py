"""Which of the known failures one exception is, by its type and its words. Pure; what that means is decided elsewhere."""

import errno
from collections.abc import Iterable

from autotune.probe.evidence import Raised, class_names
from autotune.probe.rulings import SETTINGS_HINT
from autotune.probe.signatures import (
    COMPILER_MODULES,
    COMPILER_OUTPUT,
    NEVER_MEMORY,
    OWN_MODULES,
    SIZE_OR_MEMORY,
    Kind,
    Signature,
)

MEMORY_OR_POISON = frozenset({Kind.POISON, Kind.SHARED, Kind.HOST, Kind.LOADER_KILLED, Kind.DEVICE, Kind.RUNTIME_CALL})
"""Exhausted memory or a lost context: they explain whatever else is raised on their account."""
_NOT_COMPILED = Signature(Kind.NOT_COMPILED, ())


def recognise(raised: Raised) -> Signature | None:
    """The failure it is known to be; None for an error of the user's own."""
    names, lowered = class_names(raised), raised.text.lower()
    if raised.type.startswith(OWN_MODULES):
        return Signature(Kind.NOT_SUPPORTED, (), hint=SETTINGS_HINT)
    found = _by_text(raised, names, lowered)
    if not any(base.startswith(COMPILER_MODULES) for base in (raised.type, *raised.bases)):
        return found
    # It quotes what stopped it. That may be exhausted memory of the device, or of the compiler it had started.
    memory = found is not None and found.kind in MEMORY_OR_POISON
    return found if memory and not any(words in lowered for words in COMPILER_OUTPUT) else _NOT_COMPILED


def _by_text(raised: Raised, names: frozenset[str], lowered: str) -> Signature | None:
    return (
        _first(NEVER_MEMORY, names, lowered) or _typed(raised, names, lowered) or _first(SIZE_OR_MEMORY, names, lowered)
    )


def _first(signatures: Iterable[Signature], names: frozenset[str], lowered: str) -> Signature | None:
    return next((signature for signature in signatures if signature.matches(names, lowered)), None)


def _typed(raised: Raised, names: frozenset[str], lowered: str) -> Signature | None:
    # Before MemoryError: array libraries derive their device error from it.
    if any(name.endswith("OutOfMemoryError") for name in names):
        return Signature(Kind.DEVICE, ())
    if "MemoryError" in names or ("OSError" in names and raised.errno == errno.ENOMEM):
        return Signature(Kind.HOST, ())
    return None
