"""What a search may combine: the values that are left of every knob for one workload on one device."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

from autotune.errors import UsageError
from autotune.knobs.choosing import wanted
from autotune.knobs.knob import Cost, Knob
from autotune.knobs.registry import KNOBS, OF_RANKS, knob_of
from autotune.knobs.rules import Rule, Situation, standing
from autotune.knobs.texts import Value
from autotune.model import Choice, Compile, Machine, Plan, Settings, Traits, WorkloadInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """A knob, or one of its values, that the user left open and that does not apply here."""

    knob: str
    value: str
    """Empty = all values but the user's own."""
    why: str
    """A sentence without its full stop."""


@dataclass(frozen=True, kw_only=True)
class Space:
    """Which settings may be tried. Made by ``make_space``, which also checks that the choices make sense here.

    ``accumulate`` is no part of it: settings are judged with the one they have, and made with that of ``base``.
    """

    base: Settings
    """The user's own: never refused, whatever stands against them."""
    choices: tuple[Choice, ...]
    traits: Traits
    device: str
    """Kind of device."""

    @property
    def knobs(self) -> tuple[str, ...]:
        """Knobs of the training step with something to choose from, in the order of the registry."""
        return tuple(knob.name for knob in KNOBS if not knob.loading and len(self._values[knob.name]) > 1)

    @property
    def loading_knobs(self) -> tuple[str, ...]:
        """Knobs of the data loader with something to choose from: they change no step, and are chosen apart."""
        return tuple(knob.name for knob in KNOBS if knob.loading and len(self._values[knob.name]) > 1)

    def values(self, knob: str) -> tuple[Value, ...]:
        """What a candidate may have: the user's own value first unless another is fixed, then as they are worth trying."""
        return self._values[knob_of(knob).name]

    @cached_property
    def start(self) -> Settings:
        """The user's own settings with what ``--fix`` demands: what candidates begin from."""
        settings = self.base
        for knob in KNOBS:
            if knob.of(self.base) not in self._values[knob.name]:
                settings = knob.put(settings, self._values[knob.name][0])
        return settings

    @cached_property
    def left(self) -> tuple[Left, ...]:
        """What falls away here, in the order of the registry; nothing that the user kept out."""
        told = [_told(knob, self._reasons(knob), all_of_it=len(self._values[knob.name]) == 1) for knob in KNOBS]
        return tuple(left for of_knob in told for left in of_knob)

    def refuses(self, settings: Settings) -> str:
        """Why these settings are not to be tried; empty where they are, as the user's own always are.

        These with another ``accumulate`` are judged by the rules, and may be refused.
        """
        if replace(settings, accumulate=self.base.accumulate) != self.base:
            for knob in KNOBS:
                value = knob.of(settings)
                if value not in self._values[knob.name]:
                    shown = " or ".join(knob.text(value) for value in self._values[knob.name])
                    return self._reasons(knob).get(value) or f"{knob.name} may only be {shown} here"
        return self._broken(settings)

    def never(self, knob: Knob, value: Value) -> str:
        """Why no combination of what the choices leave may have this value; empty where some may."""
        possible = {name: kept for name, (kept, _) in self._considered.items()} | {knob.name: (value,)}
        reasons = (self._broken(candidate) for candidate in self._combinations(possible))
        first = next(reasons)
        return first if first and all(reasons) else ""

    def neighbours(self, settings: Settings) -> tuple[Settings, ...]:
        """Everything allowed that differs from ``settings`` in one knob of the step; what compiles comes last.

        Settings that miss what ``--fix`` demands have it first: from there it is ``start``, and what is next to it. Another
        way of sharing comes without the options of the former one.
        """
        origin = settings
        for knob in KNOBS:
            if knob.of(settings) not in self._values[knob.name]:
                origin = knob.put(origin, knob.of(self.start))
        found = [origin] if origin != settings else []
        for knob in map(knob_of, self.knobs):
            changed = [knob.put(origin, value) for value in self.values(knob.name) if value != knob.of(origin)]
            found += map(self._useful, changed) if knob.ranks else changed
        allowed = [candidate for candidate in found if candidate != settings and not self.refuses(candidate)]
        return tuple(sorted(allowed, key=lambda candidate: cost_of(candidate) is Cost.COMPILE))

    def _useful(self, settings: Settings) -> Settings:
        """With the user's own values where another would do nothing."""
        for knob in OF_RANKS:
            if not knob.has_use(settings):
                settings = knob.put(settings, knob.of(self.base))
        return settings

    @cached_property
    def size(self) -> int:
        """Number of ``all``."""
        return sum(1 for _ in self.all())

    def all(self) -> Iterator[Settings]:
        """Every allowed combination of the knobs of the step, the user's own first; the data loader is left as it is."""
        yield self.base
        for candidate in self._combinations(self._values):
            if candidate != self.base and not self._broken(candidate):
                yield candidate

    @cached_property
    def _values(self) -> dict[str, tuple[Value, ...]]:
        """What is left of each knob after the rules: a value that no combination may have is no choice."""
        possible = {name: kept for name, (kept, _) in self._considered.items()}
        return {
            knob.name: tuple(v for v in possible[knob.name] if v == knob.of(self.base) or not self.never(knob, v))
            for knob in KNOBS
        }

    def _reasons(self, knob: Knob) -> dict[Value, str]:
        """Values of the choices that fall away, with the reason."""
        kept, barred = self._considered[knob.name]
        return barred | {v: self.never(knob, v) for v in kept if v not in self._values[knob.name]}

    @cached_property
    def _considered(self) -> dict[str, tuple[tuple[Value, ...], dict[Value, str]]]:
        """Knob -> (values that the choices leave and the device has, values that fall away with the reason)."""
        chosen = {choice.knob: choice for choice in self.choices}
        return {knob.name: self._consider(knob, chosen.get(knob.name)) for knob in KNOBS}

    def _consider(self, knob: Knob, choice: Choice | None) -> tuple[tuple[Value, ...], dict[Value, str]]:
        own = knob.of(self.base)
        if choice is None:
            return (own,), {}
        asked = wanted(knob, choice, self.base)
        fallen = {}
        for value in asked:
            why = knob.why_not(value, self.traits, self.device)
            if not why and knob.text(value) not in choice.values:
                why = knob.aside(value, self.traits, self.device)
            if why and value != own:
                fallen[value] = why
        return tuple(value for value in asked if value not in fallen), fallen

    def _combinations(self, values: Mapping[str, tuple[Value, ...]]) -> Iterator[Settings]:
        """All of them, knobs that compile varying slowest."""
        ordered = sorted((knob for knob in KNOBS if not knob.loading), key=lambda knob: knob.cost is not Cost.COMPILE)
        names = [knob.name for knob in ordered]
        for combination in product(*(values[name] for name in names)):
            yield replace(self.base, **dict(zip(names, combination, strict=True)))  # type: ignore[arg-type]

    def _broken(self, settings: Settings) -> str:
        at = Situation(settings=settings, base=self.base, traits=self.traits, device=self.device)
        return next((rule.why for rule in self._rules if rule.broken_by(at)), "")

    @cached_property
    def _rules(self) -> tuple[Rule, ...]:
        return standing(self.base, self.traits, self.device)


def make_space(
    base: Settings, choices: tuple[Choice, ...], traits: Traits, device: str
) -> tuple[Space, tuple[Left, ...]]:
    """The space for one workload on one device, and what of the choices does not apply there.

    Args:
        base: the user's own settings.
        choices: as ``knobs.choices`` makes them; empty = nothing is varied.
        traits: of workload and device.
        device: kind of device, as in ``Machine.device``.

    Raises:
        UsageError: a value was fixed that cannot be had here.
    """
    space = Space(base=base, choices=choices, traits=traits, device=device)
    demanded = [(knob_of(choice.knob), wanted(knob_of(choice.knob), choice, base)) for choice in choices]
    fixed = [(knob, values[0]) for knob, values in demanded if knob.of(base) not in values]
    for reason in (lambda knob, value: knob.why_not(value, traits, device), space.never):
        for knob, value in fixed:
            if why := reason(knob, value):
                text = f"{knob.name}={knob.text(value)}"
                raise UsageError(f"{text} was demanded, and {why}", hint=f"leave out --fix {text}")
    return space, space.left


def space_of(plan: Plan, workload: WorkloadInfo, machine: Machine) -> Space:
    """The space of a search: its own settings and choices, for its workload and as many ranks as it has.

    Raises:
        UsageError: a value was fixed that cannot be had here.
    """
    traits = replace(workload.traits, ranks=plan.ranks)
    return make_space(plan.settings, plan.space, traits, machine.device)[0]


def cost_of(settings: Settings) -> Cost:
    """What trying these settings costs beside their steps."""
    return Cost.EAGER if settings.compile is Compile.OFF else Cost.COMPILE


def _told(knob: Knob, fallen: dict[Value, str], *, all_of_it: bool) -> tuple[Left, ...]:
    if all_of_it and len(set(fallen.values())) == 1:
        return (Left(knob=knob.name, value="", why=next(iter(fallen.values()))),)
    return tuple(Left(knob=knob.name, value=knob.text(value), why=why) for value, why in fallen.items())
