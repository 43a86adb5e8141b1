"""The history sorted by settings: what ran, what trains the same as the reference, and which values are to blame."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from functools import cached_property

from autotune.model import Cause, Compile, Form, Outcome, ProbeResult, Reason, Settings
from autotune.search.apart import plain
from autotune.search.settings.rows import TRAINING, Row

Value = tuple[str, object]
"""A knob and one of its values."""
_SECOND_CHANCES = 2
"""How often a comparison that proves nothing (a neighbour on the device, a vanished process) is asked again."""
_PROVES_NOTHING = frozenset({Cause.OTHERS, Cause.ENVIRONMENT, Cause.NO_ANSWER, Cause.SIGNAL})


class Guard(Enum):
    """What the comparisons with the reference say."""

    UNKNOWN = auto()
    ACCEPTED = auto()
    REJECTED = auto()


@dataclass(frozen=True)
class Comparisons:
    """All comparisons of settings that train alike."""

    probes: tuple[ProbeResult, ...] = ()

    @property
    def guard(self) -> Guard:
        """Accepted by any comparison that ran, rejected by one that failed by itself."""
        if any(p.fits for p in self.probes):
            return Guard.ACCEPTED
        if any(not p.outcome.is_ceiling and not _proves_nothing(p) for p in self.probes):
            return Guard.REJECTED
        return Guard.REJECTED if sum(map(_proves_nothing, self.probes)) > _SECOND_CHANCES else Guard.UNKNOWN

    @property
    def too_large(self) -> int | None:
        """The smallest size at which both together do not fit."""
        return min((p.batch_size for p in self.probes if p.outcome.is_ceiling), default=None)


@dataclass(frozen=True)
class Table:
    """Everything probed, by settings."""

    history: Sequence[ProbeResult]
    base: Settings
    """Plain."""
    accepted_sizes: frozenset[int] = field(default=frozenset())
    """Sizes the workload is known to run at."""

    @cached_property
    def rows(self) -> dict[Settings, Row]:
        """Of all settings that trained, in the order they were first probed."""
        probes: dict[Settings, list[ProbeResult]] = defaultdict(list)
        for probe in self.history:
            if probe.form in TRAINING and probe.reason is not Reason.TRACE:
                probes[plain(probe.settings)].append(probe)
        return {settings: Row(settings, tuple(found)) for settings, found in probes.items()}

    def row(self, settings: Settings) -> Row:
        """An empty one where nothing was probed."""
        return self.rows.get(plain(settings)) or Row(plain(settings))

    def comparisons(self, settings: Settings) -> Comparisons:
        """Those that say something about these settings."""
        return self._comparisons.get(self._training(settings)) or Comparisons()

    def guard(self, settings: Settings) -> Guard:
        """Whether the settings train the same; the user's own do."""
        if self._training(settings) == self._training(self.base):
            return Guard.ACCEPTED
        return self.comparisons(settings).guard

    def faulty(self, row: Row) -> bool:
        """Whether the settings themselves fail or train something else."""
        return row.settings != self.base and (
            self.guard(row.settings) is Guard.REJECTED or row.fault(self.accepted_sizes) is not None
        )

    @cached_property
    def alive(self) -> tuple[Row, ...]:
        """Rows that may be recommended as far as known."""
        return tuple(row for row in self.rows.values() if row.runs and not self.faulty(row))

    @cached_property
    def blamed(self) -> frozenset[Value]:
        """Values that are the only difference between settings that fail and settings that do not."""
        found: set[Value] = set()
        for row in self.rows.values():
            if not self.faulty(row):
                continue
            rejected = self.guard(row.settings) is Guard.REJECTED
            for other in self.rows.values():
                if self.faulty(other) or not other.evidence.good:
                    continue
                if rejected and self.guard(other.settings) is not Guard.ACCEPTED:
                    continue
                changes = row.settings.changes(other.settings)
                if len(changes) == 1:
                    found |= _with_others_of_its_kind(*next(iter(changes.items())))
        base = {(name, value) for name, value in found if getattr(self.base, name) == value}
        return frozenset(found - base)

    def blames(self, settings: Settings) -> bool:
        """Whether the settings have a value that is to blame."""
        return any(getattr(settings, knob) == value for knob, value in self.blamed)

    def _training(self, settings: Settings) -> Settings:
        """What decides what is trained: not how memory is cut, nor how batches are loaded."""
        base = self.base
        return replace(
            plain(settings),
            allocator=base.allocator,
            loader_workers=base.loader_workers,
            pin_memory=base.pin_memory,
        )

    @cached_property
    def _comparisons(self) -> dict[Settings, Comparisons]:
        probes: dict[Settings, list[ProbeResult]] = defaultdict(list)
        for probe in self.history:
            if probe.form is Form.COMPARE:
                probes[self._training(probe.settings)].append(probe)
        return {settings: Comparisons(tuple(found)) for settings, found in probes.items()}


def _with_others_of_its_kind(knob: str, value: object) -> set[Value]:
    """What breaks the plain mode of the compiler breaks its other modes."""
    if value is Compile.DEFAULT:
        return {(knob, mode) for mode in Compile if mode is not Compile.OFF}
    return {(knob, value)}


def _proves_nothing(probe: ProbeResult) -> bool:
    cause = probe.failure.cause if probe.failure else None
    return probe.outcome is Outcome.UNRELIABLE or cause in _PROVES_NOTHING
