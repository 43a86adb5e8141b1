"""What ``autotune doctor`` says of an installation and a machine: facts, each of which stands on its own."""

from dataclasses import dataclass, field
from enum import StrEnum


class Health(StrEnum):
    """What a fact means for a search here."""

    OK = "ok"
    NOTE = "note"
    """Worth knowing; searches run all the same."""
    TROUBLE = "trouble"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One line."""

    section: str
    name: str
    value: str
    """Secrets masked."""
    health: Health = Health.OK
    hint: str = ""
    """What to type; empty where nothing need be done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenDevice:
    """One CUDA device as PyTorch sees it."""

    index: int
    name: str
    uuid: str
    """As PyTorch writes it; empty where it does not know."""
    capacity_bytes: int | None
    """None: not asked, or no answer."""
    free_bytes: int | None
    unified: bool
    computes: bool | None
    """Whether a small product came out right; None: not tried, since a probe of somebody runs there."""
    trouble: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a process that loaded PyTorch saw."""

    cpu_computes: bool
    cuda_version: str
    """That PyTorch was built with; empty = without."""
    devices: tuple[SeenDevice, ...] = ()
    facts: tuple[Fact, ...] = field(default=())
    """Lines ready to print."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """All of it."""

    facts: tuple[Fact, ...]
    usable: bool
    """PyTorch loads, some device computes, and the ledger can be opened or made."""
