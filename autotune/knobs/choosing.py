"""``--fix``, ``--allow`` and ``--forbid`` -> choices, before anything is known of the workload and the device.

A choice names the values that candidates may have. The user's own value stands first wherever candidates may keep it: a
choice without it fixes another one. ``auto`` stands for every value that makes sense where the search will run; ``!value``
takes one out of these. A knob without a choice keeps the user's own value.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from autotune.errors import UsageError
from autotune.knobs.knob import Knob
from autotune.knobs.registry import KNOBS, knob_of
from autotune.knobs.texts import CONFIGURATION, Value
from autotune.model import Choice, Settings

AUTO = "auto"
NONE = "none"
ALL = "all"


def choices(
    fix: Sequence[str], allow: Sequence[str], forbid: Sequence[str], settings: Settings, ranks: int = 1
) -> tuple[Choice, ...]:
    """What of the settings a search may change.

    Args:
        fix: ``KNOB=VALUE``: every candidate has it; ``KNOB``: every candidate has the user's own value.
        allow: ``KNOB``: of all knobs only those named are varied; ``KNOB=V1,V2``: and only to these values, which may be
            some that are not tried otherwise; ``all``: the other knobs as well; ``none``: nothing is varied. Named again,
            a knob has the values of both. An allocator configuration has commas of its own: one for each option.
        forbid: ``KNOB``: as ``--fix KNOB``; ``KNOB=V1,V2``: no candidate has these values.
        settings: the user's own.
        ranks: that train together; with one, knobs of several are left out unless they are named.

    Returns:
        One choice for each knob that is varied or fixed, in the order of the registry; empty = nothing is.

    Raises:
        UsageError: there is no such knob or value, or two options contradict each other.
    """
    asked = {knob.name: _Asked(knob) for knob in KNOBS}
    listed = [item.strip() for item in allow]
    if NONE in listed and len(listed) > 1:
        raise UsageError(f"--allow {NONE} stands beside --allow {_other(listed)}", hint="leave out one of the two")
    whitelist = bool(listed) and ALL not in listed
    for item in listed:
        if item not in (NONE, ALL):
            asked[_knob(item, "allow").name].allow(item)
    for item in fix:
        asked[_knob(item, "fix").name].fix(item)
    for item in forbid:
        asked[_knob(item, "forbid").name].forbid(item)
    made = [one.choice(settings, whitelist=whitelist or (one.knob.ranks and ranks == 1)) for one in asked.values()]
    return tuple(choice for choice in made if choice is not None)


def wanted(knob: Knob, choice: Choice, settings: Settings) -> tuple[Value, ...]:
    """The values of a choice; ``auto`` becomes the user's own and the knob's but those that are tried by name only.

    Raises:
        UsageError: one of them is no value of the knob.
    """
    if AUTO not in choice.values:
        return tuple(dict.fromkeys(knob.parse(text) for text in choice.values))
    out = [knob.parse(text[1:]) for text in choice.values if text.startswith("!")]
    named = [knob.parse(text) for text in choice.values if text != AUTO and not text.startswith("!")]
    usual = [value for value in knob.values if value not in (*knob.by_name, *knob.only_own, *out)]
    return tuple(dict.fromkeys([knob.of(settings), *usual, *named]))


@dataclass
class _Asked:
    """What the options say of one knob."""

    knob: Knob
    allowed: list[Value] = field(default_factory=list)
    open: bool = False
    """Named without values by ``--allow``."""
    kept: str = ""
    """The option that named it without a value: ``--fix`` or ``--forbid``."""
    fixed: list[Value] = field(default_factory=list)
    forbidden: list[Value] = field(default_factory=list)

    def allow(self, item: str) -> None:
        values = _values(self.knob, item)
        self.allowed += values
        self.open = self.open or not values

    def fix(self, item: str) -> None:
        values = _values(self.knob, item)
        if len({*self.fixed, *values}) > 1:
            raise UsageError(
                f"{self.knob.name} cannot be fixed at {self._texts([*self.fixed, *values])} at once",
                hint=f"fix one of them, or let them be compared: --allow {self.knob.name}=V1,V2",
            )
        self.fixed += values
        self.kept = self.kept if values else "--fix"

    def forbid(self, item: str) -> None:
        values = _values(self.knob, item)
        self.forbidden += values
        self.kept = self.kept if values else "--forbid"

    def choice(self, settings: Settings, *, whitelist: bool) -> Choice | None:
        """None = the knob stays at the user's own value."""
        own = self.knob.of(settings)
        self._check(own)
        if self.fixed and self.fixed[0] != own:
            return self._made([self.fixed[0]])
        named = bool(self.allowed) or self.open
        if self.fixed or self.kept or (whitelist and not named):
            return None
        if self.allowed and not self.open:
            values = list(dict.fromkeys([own, *self.allowed]))
            return self._made(values) if len(values) > 1 else None
        more = [self.knob.text(value) for value in dict.fromkeys(self.allowed)]
        return Choice(
            knob=self.knob.name,
            values=(AUTO, *more, *(f"!{self.knob.text(value)}" for value in dict.fromkeys(self.forbidden))),
        )

    def _check(self, own: Value) -> None:
        name = self.knob.name
        if self.kept and self.fixed and self.fixed[0] != own:
            raise UsageError(
                f"{name} cannot be kept at {self.knob.text(own)} and fixed at {self._texts(self.fixed)} at once",
                hint=f"leave out one of the two options for {name}",
            )
        if (self.allowed or self.open) and (self.kept or self.fixed):
            raise UsageError(
                f"{name} is to be varied by --allow and kept by {self.kept or '--fix'}",
                hint=f"leave out one of the two for {name}",
            )
        both = [value for value in self.forbidden if value in self.fixed or value in self.allowed]
        if both:
            asked = "--fix" if self.fixed else "--allow"
            raise UsageError(
                f"{asked} and --forbid both name {name}={self.knob.text(both[0])}", hint="leave out one of the two"
            )
        if own in self.forbidden and not self.fixed:
            text = self.knob.text(own)
            raise UsageError(
                f"--forbid {name}={text} is what your own settings have, and these are always measured",
                hint=f"demand another value: --fix {name}=VALUE",
            )

    def _made(self, values: list[Value]) -> Choice:
        return Choice(knob=self.knob.name, values=tuple(self.knob.text(value) for value in values))

    def _texts(self, values: list[Value]) -> str:
        return " and ".join(self.knob.text(value) for value in dict.fromkeys(values))


def _knob(item: str, option: str) -> Knob:
    name = item.partition("=")[0].strip()
    if not name:
        raise UsageError(f"--{option} {item!r} names no knob", hint=f"write --{option} KNOB or --{option} KNOB=VALUE")
    if name in (NONE, ALL):
        raise UsageError(
            f"--{option} {name} means nothing", hint=f"--{option} takes a knob; --allow takes {NONE} and {ALL}"
        )
    return knob_of(name)


def _values(knob: Knob, item: str) -> list[Value]:
    """Values after ``=``; empty where there is no ``=``."""
    _, equals, text = item.partition("=")
    if not equals:
        return []
    parts = [text] if knob.reading is CONFIGURATION else text.split(",")
    return [knob.parse(part.strip()) for part in parts]


def _other(listed: list[str]) -> str:
    return next(item for item in listed if item != NONE) if set(listed) != {NONE} else NONE
