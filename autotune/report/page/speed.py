"""Throughput for a report: against memory with the Pareto front, and the times of single steps."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from autotune.model import Form, Outcome, ProbeResult, Settings
from autotune.report.baseline import TRAINING, fastest
from autotune.report.page.memory import deciding
from autotune.report.page.view import Role, StepTimes, Trade
from autotune.report.setting_words import settings_words
from autotune.search.apart import plain

MOST_TRADES = 400
MOST_TIMES = 12


class Roles:
    """Which settings are whose."""

    def __init__(self, probes: Iterable[ProbeResult], own: Settings, chosen: Settings | None) -> None:
        """
        Args:
            probes: of the search.
            own: the user's settings.
            chosen: those of the answer; None = there is none.
        """
        self._own, self._chosen = plain(own), plain(chosen) if chosen is not None else None
        compared = {plain(p.settings): p.fits for p in probes if p.form is Form.COMPARE}
        self._rejected = {settings for settings, same in compared.items() if not same}

    def of(self, settings: Settings) -> Role:
        """The role of settings, accumulation left aside."""
        asked = plain(settings)
        if asked == self._chosen:
            return Role.RECOMMENDED
        if asked == self._own:  # of which a comparison can only have shown that accumulation is not equivalent
            return Role.YOURS
        return Role.REJECTED if asked in self._rejected else Role.OTHER

    def words(self, settings: Settings) -> str:
        """What of them is not as the user has it."""
        return settings_words(settings, self._own)


def trades(probes: Sequence[ProbeResult], roles: Roles) -> tuple[Trade, ...]:
    """One for each size that was timed under some settings: the front by memory, then the others by throughput."""
    by_size: dict[tuple[Settings, int], list[ProbeResult]] = {}
    for probe in probes:
        if probe.form in TRAINING and probe.outcome is not Outcome.UNRELIABLE:
            by_size.setdefault((plain(probe.settings), probe.batch_size), []).append(probe)
    found = []
    for (settings, size), there in by_size.items():
        best = fastest(there)
        peak = best.measurement.peak_device_bytes if best else None
        if best is None or peak is None or best.samples_per_second is None or not deciding(there).fits:
            continue
        found.append(
            Trade(
                settings=roles.words(settings),
                role=roles.of(settings),
                batch_size=size,
                peak_bytes=peak,
                samples_per_second=best.samples_per_second,
                on_front=False,
            )
        )
    front = pareto(found)
    best_of = set(front)
    others = sorted((one for one in found if one not in best_of), key=lambda one: -one.samples_per_second)
    return tuple([*(replace(one, on_front=True) for one in front), *others][:MOST_TRADES])


def pareto(found: Iterable[Trade]) -> list[Trade]:
    """Those that no other one beats, or equals, in both memory and throughput; by memory, ascending. What trains
    something else is no rival."""
    front: list[Trade] = []
    rivals = (one for one in found if one.role is not Role.REJECTED)
    for one in sorted(rivals, key=lambda one: (one.peak_bytes, -one.samples_per_second)):
        if not front or one.samples_per_second > front[-1].samples_per_second:
            front.append(one)
    return front


def step_times(probes: Sequence[ProbeResult], roles: Roles, batch_size: int | None) -> tuple[StepTimes, ...]:
    """The best timed probe of each set of settings, fastest first; of a single one, that of each size.

    Of too many the answer stays, then the user's own, then the fastest.

    Args:
        batch_size: the recommended one, whose probe stands for the recommended settings; None = there is none.
    """
    timed = [p for p in probes if p.fits and p.form in TRAINING and p.samples_per_second is not None]
    groups: dict[Settings | int, list[ProbeResult]] = {}
    for probe in timed:
        groups.setdefault(plain(probe.settings), []).append(probe)
    if len(groups) == 1:
        groups = {}
        for probe in timed:
            groups.setdefault(probe.batch_size, []).append(probe)
    rows = []
    for there in groups.values():
        here = [p for p in there if p.batch_size == batch_size and roles.of(p.settings) is Role.RECOMMENDED]
        best = fastest(here or there)
        if best is None:
            continue
        samples = best.batch_size * (best.measurement.micro_batches or best.settings.accumulate)
        rows.append(
            StepTimes(
                settings=roles.words(best.settings),
                role=roles.of(best.settings),
                batch_size=best.batch_size,
                samples=samples,
                seconds=best.measurement.step_seconds,
            )
        )
    rows.sort(key=lambda row: min(row.seconds, default=0.0) / row.samples)

    def less_telling(row: StepTimes) -> tuple[bool, bool]:
        return (row.role, row.batch_size) != (Role.RECOMMENDED, batch_size), row.role is not Role.YOURS

    kept = set(sorted(rows, key=less_telling)[:MOST_TIMES])  # of equals the fastest
    return tuple(row for row in rows if row in kept)
