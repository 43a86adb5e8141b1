"""Recommendation and target -> text and notes. Here it is made sure that no setting gets lost on the way."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from autotune.errors import UsageError
from autotune.export.accelerate import config_file
from autotune.export.by_hand import by_hand
from autotune.export.deepspeed import config
from autotune.export.hydra import overrides
from autotune.export.lightning import trainer_arguments
from autotune.export.nouns import Draft, Exported, Note, Recommendation, Target
from autotune.export.shell import exports
from autotune.export.transformers import training_arguments
from autotune.model import Settings

_TARGETS: dict[Target, Callable[[Recommendation], Draft]] = {
    Target.HF: training_arguments,
    Target.LIGHTNING: trainer_arguments,
    Target.ACCELERATE: config_file,
    Target.DEEPSPEED: config,
    Target.HYDRA: overrides,
    Target.ENV: exports,
}
_SETTINGS = [field.name for field in fields(Settings)]


def export(recommendation: Recommendation, target: Target, *, merge: Mapping[str, Any] | None = None) -> Exported:
    """The recommendation in the target's words.

    Args:
        recommendation: what to express.
        target: who reads it.
        merge: a DeepSpeed configuration whose other keys are kept; it is not changed itself.

    Raises:
        UsageError: ``merge`` was given for another target, or is no DeepSpeed configuration.
    """
    if merge is None:
        draft = _TARGETS[target](recommendation)
    elif target is Target.DEEPSPEED:
        draft = config(recommendation, merge)
    else:
        raise UsageError(
            f"there is nothing to merge into for {target}", hint="--merge takes the file of --to deepspeed"
        )
    told = {note.about for note in draft.notes}
    missing = [
        recommendation.note(name, by_hand(name, recommendation))
        for name in recommendation.changed
        if name not in draft.sets and name not in told
    ]
    return Exported(
        target=target,
        text=draft.text,
        file_text=draft.file_text or draft.text,
        notes=tuple(sorted([*draft.notes, *missing], key=_place)),
    )


def _place(note: Note) -> int:
    """Keys of the export first, then settings as they are declared."""
    return _SETTINGS.index(note.about) if note.about in _SETTINGS else -1
