"""What goes into an export, and what comes out of it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from autotune.errors import UsageError
from autotune.model import Settings

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Target(StrEnum):
    """Who is to read the export."""

    HF = "hf"
    """transformers: fields of ``TrainingArguments``, as ``HfArgumentParser.parse_json_file`` reads them."""
    LIGHTNING = "lightning"
    """Arguments of ``lightning.Trainer`` and of the data loader."""
    ACCELERATE = "accelerate"
    """A file for ``accelerate launch --config_file``."""
    DEEPSPEED = "deepspeed"
    """DeepSpeed's JSON configuration."""
    HYDRA = "hydra"
    """Overrides for a command line, or a file of a configuration group."""
    ENV = "env"
    """Lines for a POSIX shell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """What ``autotune.json`` says, as far as another framework can be told.

    Raises:
        UsageError: the environment has a name that no shell would take.
    """

    settings: Settings
    """With ``accumulate`` as recommended."""
    micro_batch: int
    """Samples of one batch on one device."""
    eval_batch: int | None = None
    """Samples of one evaluation batch on one device; None = not known, or none fits."""
    world: int = 1
    """Devices that train together."""
    device: str = "cuda"
    """Kind of device it was measured on, as PyTorch calls it."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables to set before the training starts."""

    def __post_init__(self) -> None:
        for name in self.environment:
            if not _VARIABLE.fullmatch(name):
                raise UsageError(
                    f"{name!r} cannot be the name of an environment variable",
                    hint="names under environment in autotune.json have letters, digits and underscores only",
                )

    @property
    def changed(self) -> dict[str, Any]:
        """Settings that differ from what the user's training does by itself, in the order they are declared."""
        return self.settings.changes(Settings())

    def note(self, setting: str, advice: str) -> "Note":
        """A note about a setting, with its value."""
        return Note(about=setting, value=str(getattr(self.settings, setting)), advice=advice)


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Something the export does not do by itself."""

    about: str
    """Name of a setting, or key of the export."""
    value: str
    """What was recommended for it."""
    advice: str
    """What to write, and where."""

    def __str__(self) -> str:
        return f"{self.about}={self.value}: {self.advice}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """What one target made of a recommendation."""

    text: str
    file_text: str = ""
    """What belongs into a file, where that is not the same text."""
    sets: frozenset[str]
    """Settings that whoever reads the text will apply."""
    notes: tuple[Note, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """A recommendation for one target. Texts have no line break at their end."""

    target: Target
    text: str
    file_text: str
    """What belongs into a file."""
    notes: tuple[Note, ...]
    """What the text cannot express."""
