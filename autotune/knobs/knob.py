"""One knob: its values, what it does and can break, and whether it makes sense for a workload on a device."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from autotune.errors import UsageError
from autotune.knobs.texts import Reading, Value
from autotune.model import Parallel, Settings, Traits

Judge = Callable[[Value, Traits, str], str]
"""(value, traits, device kind) -> why not, in a sentence without its full stop; empty = nothing stands against it."""


class Cost(StrEnum):
    """What trying a value costs beside the steps themselves."""

    EAGER = "eager"
    COMPILE = "compile"
    """The first step compiles: half a minute and more."""


class Place(StrEnum):
    """Where a value takes effect, so how late it may be set."""

    ENVIRONMENT = "environment"
    """Of the process, before the device is first used; cannot be changed afterwards."""
    PROCESS = "process"
    """PyTorch's global switches."""
    MODEL = "model"
    """Done to the model, before its first step."""
    OPTIMIZER = "optimizer"
    """An argument of the optimizer's class."""
    STEP = "step"
    """Every training step."""
    LOADER = "loader"
    """An argument of the data loader."""


def _nothing(value: Value, traits: Traits, device: str) -> str:
    return ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Knob:
    """One field of ``Settings`` that a search may change."""

    name: str
    """Of the field."""
    values: tuple[Value, ...]
    """Those that are known, the default first, then as they are worth trying."""
    by_name: tuple[Value, ...] = ()
    """Those of ``values`` that nothing is expected of: they are tried only where the user names them."""
    only_own: tuple[Value, ...] = ()
    """Those that are there for users who have them already: others are never led to them."""
    reading: Reading
    """Between a value and its text."""
    summary: str
    """What it does."""
    risk: str
    """What it can break or cost."""
    applied: str
    """How it is put into effect."""
    place: Place
    cost: Cost = Cost.EAGER
    memory: bool = True
    """May change the device memory a step needs."""
    loading: bool = False
    """About the data loader: the step itself stays what it is."""
    ranks: bool = False
    """Of trainings of several ranks alone: where there is one, it is left alone unless the user names it."""
    sharing: tuple[Parallel, ...] = ()
    """Ways of sharing that it is an option of, beside which it changes nothing; empty = it goes with all of them."""
    bar: Judge = _nothing
    """Why a value other than the default cannot be had, whoever asks for it."""
    aside: Judge = _nothing
    """Why a value that could be had is not worth a probe unless the user names it."""
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Target of ``autotune export`` -> names of the options that the knob becomes there, dots for nested ones. A target
    that is not here has no option for it: it takes a line of code."""

    @property
    def default(self) -> Value:
        """Changes nothing of the user's training."""
        return self.values[0]

    def of(self, settings: Settings) -> Value:
        """The value that the settings have."""
        value: Value = getattr(settings, self.name)
        return value

    def put(self, settings: Settings, value: Value) -> Settings:
        """The settings with this value.

        Raises:
            UsageError: the value makes no sense.
        """
        changed: dict[str, Value] = {self.name: value}
        return replace(settings, **changed)  # type: ignore[arg-type]  # a knob's values are those of its field

    def has_use(self, settings: Settings) -> bool:
        """Whether it changes anything, the way these settings share a training between ranks."""
        return not self.sharing or settings.parallel in self.sharing

    def why_not(self, value: Value, traits: Traits, device: str) -> str:
        """Why the value cannot be had here; empty where it can, as the default always can."""
        return "" if value == self.default else self.bar(value, traits, device)

    def applies(self, traits: Traits, device: str) -> dict[Value, str]:
        """Of the known values those that cannot be had here, each with the reason."""
        return {value: why for value in self.values if (why := self.why_not(value, traits, device))}

    def text(self, value: Value) -> str:
        """The value as the user writes it."""
        return self.reading.text(value)

    def parse(self, text: str) -> Value:
        """The value that the user wrote.

        Raises:
            UsageError: it is none of the knob's; the message names those that are.
        """
        known = {self.text(value): value for value in self.values}
        if text in known:
            return known[text]
        if self.reading.parse is not None:
            value = self.reading.parse(text)
            if value is not None:
                self.put(Settings(), value)  # raises where it makes no sense
                return value
        raise UsageError(f"{self.name} has no value {text!r}", hint=self.hint(text))

    def hint(self, text: str) -> str:
        """What to type instead of ``text``."""
        return self.reading.hint(text, [self.text(value) for value in self.values])
