"""Hydra: one override per line for a command line, or the same values as a file of a configuration group.

``++autotune.KEY=VALUE`` adds the key or overrides it. As ``conf/autotune/recommended.yaml`` the file is chosen with
``+autotune=recommended``, and the values are found in the same places.
"""

import re
from dataclasses import fields
from typing import Any

from autotune.export.nouns import Draft, Note, Recommendation
from autotune.export.text import yaml_text
from autotune.model import Settings

_GROUP = "autotune"
_CARRIED = f"Hydra hands them over as {_GROUP}.NAME; the training has to apply them, or to use autotune.load"
_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_OWN_MEANING = frozenset({"true", "false", "null", "nan", "inf"})
"""Bare words that Hydra does not take for text, in any case of their letters."""


def overrides(recommendation: Recommendation) -> Draft:
    """All values of the recommendation, so that none of an older one stays behind."""
    it = recommendation.settings
    values: dict[str, Any] = {"micro_batch": recommendation.micro_batch, "world": recommendation.world}
    values |= {field.name: getattr(it, field.name) for field in fields(Settings)}
    changed = [name for name in recommendation.changed if name not in ("accumulate", "allocator")]
    return Draft(
        text="\n".join(f"++{_GROUP}.{name}={_value(value)}" for name, value in values.items()),
        file_text=yaml_text(values),
        sets=frozenset(values) - {"allocator"},  # the environment is too late to set once Hydra runs
        notes=(Note(about="settings", value=",".join(changed), advice=_CARRIED),) if changed else (),
    )


def _value(value: Any) -> str:
    """A value in Hydra's override grammar."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str):
        return repr(value)
    if _BARE.fullmatch(value) and value.lower() not in _OWN_MEANING:
        return str(value)
    escaped = re.sub(r"(\\*)'", r"\1\1\\'", value)
    return f"'{escaped}'"
