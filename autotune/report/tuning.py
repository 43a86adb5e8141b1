"""What a search of settings tried, as a table: each set of settings with what it reached and what became of it."""

from collections.abc import Mapping
from dataclasses import dataclass

from autotune.knobs import space_of
from autotune.model import Form, Outcome, ProbeResult, Reason, SearchResult, Settings
from autotune.report.baseline import baseline, fastest
from autotune.report.columns import align
from autotune.report.setting_words import settings_words
from autotune.report.words import OUTCOMES, format_rate
from autotune.search.apart import Apart, plain
from autotune.units import format_bytes

_HEADINGS = ("settings", "batch", "samples/s", "gain", "peak", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsRow:
    """What became of one set of settings."""

    settings: Settings
    """Accumulation left aside."""
    words: str
    """What of them is not as the user has it."""
    shown: ProbeResult
    """The probe that says most of them: the fastest safe one, else the last."""
    rate: float | None
    """Samples per second; None where no safe step was timed."""
    gain: float | None
    """By that of the user's own at the same size, or at their best."""
    trains_same: bool
    """False: compared with the user's own, they were rejected."""
    verdict: str


def settings_table(result: SearchResult) -> tuple[str, ...]:
    """One line for each of ``settings_rows``, under headings; empty for a search of the batch alone."""
    rows = settings_rows(result)
    return align([_HEADINGS, *(_cells(row) for row in rows)], right={1, 2, 3, 4}) if rows else ()


def settings_rows(result: SearchResult) -> tuple[SettingsRow, ...]:
    """Each set of settings that was tried: the user's own first, then by throughput, failures last.

    Empty for a search of the batch alone.
    """
    groups: dict[Settings, list[ProbeResult]] = {}
    for probe in Apart.of(result.probes).training:
        if probe.form is not Form.LOADING:
            groups.setdefault(plain(probe.settings), []).append(probe)
    own = plain(result.plan.settings)
    chosen = plain(result.settings)
    if not result.plan.space or set(groups) <= {own}:
        return ()
    reference = baseline(result)
    at = {p.batch_size: fastest(q for q in groups[own] if q.batch_size == p.batch_size) for p in groups.get(own, [])}
    rows = [_row(settings, probes, own, chosen, reference, at) for settings, probes in groups.items()]
    return tuple(sorted(rows, key=lambda row: (row.settings != own, -((row.rate if row.trains_same else None) or 0.0))))


def left_out(result: SearchResult) -> tuple[str, ...]:
    """Which knobs, or values of them, do not apply here, and why."""
    if not result.plan.space:
        return ()
    left = space_of(result.plan, result.workload, result.machine).left
    return tuple(f"{one.knob}{'=' + one.value if one.value else ''}: {one.why}" for one in left)


def _row(
    settings: Settings,
    probes: list[ProbeResult],
    own: Settings,
    chosen: Settings,
    reference: ProbeResult | None,
    own_at: Mapping[int, ProbeResult | None],
) -> SettingsRow:
    """``own_at``: the user's settings by batch size: what is not recommended is compared at its own size."""
    best = fastest(probes)
    rate = best.samples_per_second if best else None
    same = own_at.get(best.batch_size) if best is not None and settings != chosen else None
    beside = same or reference
    base = beside.samples_per_second if beside else None
    said = _verdict(probes, best)
    if settings == chosen:
        said = f"recommended; {said}" if said else "recommended"
    return SettingsRow(
        settings=settings,
        words=settings_words(settings, own),
        shown=best or probes[-1],
        rate=rate,
        gain=rate / base if rate and base else None,
        trains_same=_rejected(probes) is None,
        verdict=said,
    )


def _cells(row: SettingsRow) -> tuple[str, ...]:
    peak = format_bytes(row.shown.measurement.peak_device_bytes)
    gain = f"{row.gain:.2f}x" if row.gain else ""
    return row.words, str(row.shown.batch_size), format_rate(row.rate), gain, peak, row.verdict


def _rejected(probes: list[ProbeResult]) -> ProbeResult | None:
    """The comparison that found them to train something else."""
    compared = [p for p in probes if p.form is Form.COMPARE]
    return compared[-1] if compared and not compared[-1].fits else None


def _verdict(probes: list[ProbeResult], best: ProbeResult | None) -> str:
    rejected = _rejected(probes)
    if rejected is not None:
        return f"rejected: {_why(rejected)}"
    failed = [p for p in probes if not p.fits and p.reason is not Reason.TRACE]
    if best is None:
        return _why(failed[-1]) if failed else ""
    words = []
    if any(p.form is Form.COMPARE for p in probes):
        words.append("trains the same")
    if any(p.form is Form.LONG and p.fits for p in probes):
        words.append("certified")
    compile_s = best.measurement.first_step_seconds
    if best.measurement.graph_breaks is not None and compile_s is not None:
        breaks = best.measurement.graph_breaks
        words.append(
            f"first step {compile_s:.0f} s" + (f", {breaks} graph break{'s' if breaks > 1 else ''}" if breaks else "")
        )
    if best.measurement.recompiles:
        words.append(f"compiled {best.measurement.recompiles} times more later")
    return ", ".join(words)


def _why(probe: ProbeResult) -> str:
    failure, words = probe.failure, OUTCOMES[probe.outcome]
    if failure is None or probe.outcome in (Outcome.OUT_OF_MEMORY, Outcome.HOST_OUT_OF_MEMORY):
        return words
    first = failure.message.splitlines()[0] if failure.message else ""
    return f"{words}: {first}" if first else words
