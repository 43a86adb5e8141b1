"""What came out of a search on one kind of machine among several."""

from dataclasses import dataclass

from autotune.errors import AutotuneError
from autotune.model.machine import Machine


@dataclass(frozen=True, slots=True, kw_only=True)
class KindFailed:
    """A kind of machine that has no answer."""

    machine: Machine
    """One of the kind, without what tells it from others of it."""
    error: AutotuneError
    """Why there is none."""
