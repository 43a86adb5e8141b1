"""A user's own configuration with recommended values put in, and what that replaced."""

import copy
import json
from collections.abc import Mapping
from typing import Any

from autotune.errors import UsageError
from autotune.export.nouns import Note

_AUTO = "auto"


class Merged:
    """A tree of sections and keys. Keys that nobody puts stay as they are, in their order.

    A value ``"auto"`` stays, too: it asks transformers to fill in what ``TrainingArguments`` say.
    """

    def __init__(self, own: Mapping[str, Any]) -> None:
        self.content: dict[str, Any] = copy.deepcopy(dict(own))
        self.notes: list[Note] = []
        """Keys that stay ``"auto"``, and those whose value was replaced."""

    def get(self, section: str, key: str) -> Any:
        """The value of a section's key; None where either is missing.

        Raises:
            UsageError: there is a value in place of the section.
        """
        return self._section(section).get(key)

    def put(self, path: str, value: Any) -> None:
        """Set ``key`` or ``section.key``; a missing section is made.

        Raises:
            UsageError: there is a value in place of the section.
        """
        section, _, key = path.rpartition(".")
        holder = self._section(section) if section else self.content
        before = holder.get(key)
        if before == _AUTO:
            self._note(path, value, 'stays "auto", which transformers fills in: autotune export --to hf')
            return
        if key in holder and before != value:
            self._note(path, value, f"was {json.dumps(before)} in the file to merge into")
        holder[key] = value
        if section:
            self.content[section] = holder

    def leave_out(self, key: str, advice: str) -> None:
        """Take a key out where it has a value."""
        if self.content.get(key, _AUTO) != _AUTO:
            self._note(key, None, f"was {json.dumps(self.content.pop(key))} in the file to merge into; {advice}")

    def turn_off(self, section: str) -> None:
        """Disable a section; where it is missing, that is so already.

        Raises:
            UsageError: there is a value in its place.
        """
        if self.get(section, "enabled"):
            self.put(f"{section}.enabled", False)

    def _section(self, name: str) -> dict[str, Any]:
        found = self.content.get(name, {})
        if not isinstance(found, dict):
            raise UsageError(
                f"{name} is {json.dumps(found)} in the file to merge into, and not a section",
                hint=f'write "{name}": {{"enabled": true}} there, or remove it',
            )
        return found

    def _note(self, path: str, value: Any, advice: str) -> None:
        self.notes.append(Note(about=path, value=json.dumps(value), advice=advice))
