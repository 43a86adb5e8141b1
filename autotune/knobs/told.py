"""What a training command is told of settings: only what it has a template for can be asked of it, or searched."""

from collections.abc import Sequence

from autotune.errors import UsageError
from autotune.knobs.choosing import choices
from autotune.knobs.registry import KNOBS, knob_of
from autotune.model import Choice, Settings

ACCUMULATE = "accumulate"
BATCH = "batch"
_BY_ENVIRONMENT = "allocator"
"""Needs no template: PyTorch reads it from the environment."""


def told(
    templates: Sequence[tuple[str, str]],
    settings: Settings,
    effective_batch: int | None,
    *,
    tune: bool,
    fix: Sequence[str],
    allow: Sequence[str],
    forbid: Sequence[str],
) -> tuple[Choice, ...]:
    """What of a command's settings a search may change; empty = only the batch is searched.

    Args:
        templates: (name, template) of each.
        settings: the user's own.
        effective_batch: wanted, if any.
        tune: whether settings are searched at all.
        fix, allow, forbid: as for ``choices``.

    Raises:
        UsageError: a template, or what is asked for, names a setting that is none, or that the command is not told of.
    """
    names = [name for name, _ in templates]
    for name in names:
        if name not in (BATCH, ACCUMULATE):
            knob_of(name)
    known = {*names, _BY_ENVIRONMENT}
    for name in settings.changes(Settings()):
        _check(name, known)
    if effective_batch is not None:
        _check(ACCUMULATE, known)
    for item in (*fix, *allow, *forbid):
        if item.strip() not in ("none", "all"):
            _check(item.partition("=")[0].strip(), known)
    searched = [knob.name for knob in KNOBS if knob.name in names]
    if not tune or not (searched or any(item.strip() != "none" for item in allow)):
        return ()
    if not allow:
        allow = [
            name if "{value}" in template or template.startswith("env:") else _switch(name)
            for name, template in templates
            if name in searched
        ]
    return choices(fix, allow, forbid, settings)


def _switch(name: str) -> str:
    """A template without a value can only be there or not: it stands for the first value that is not the default."""
    knob = knob_of(name)
    return f"{name}={knob.text(knob.values[1])}"


def _check(name: str, known: set[str]) -> None:
    if name in known:
        return
    raise UsageError(
        f"the command is not told of {name}",
        hint=f"say how it is told: --set '{name}=--{name.replace('_', '-')} {{value}}', or leave the option out",
    )
