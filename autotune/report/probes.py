"""Finished probes as text: one line while the search runs, a table and full failures afterwards."""

from collections.abc import Sequence

from autotune.model import Phase, ProbeResult, Reason, Settings
from autotune.report.columns import align
from autotune.report.setting_words import settings_words
from autotune.report.words import FORMS, REASONS, failure_words, format_rate, format_share
from autotune.units import format_bytes, format_seconds

_HEADINGS = ("#", "batch", "form", "why", "peak", "samples/s", "time", "outcome")
_NUMBERS = frozenset({0, 1, 4, 5, 6})


def probe_line(result: ProbeResult, number: int) -> str:
    """One finished probe in a line; columns line up as long as numbers stay ordinary."""
    peak_bytes, rate = result.measurement.peak_device_bytes, result.samples_per_second
    facts = [
        f"probe {number:<2}",
        f"batch {result.batch_size:<6}",
        f"{FORMS[result.form]:<5}",
        f"{REASONS[result.reason]:<12}",
        failure_words(result),
    ]
    if apart := evaluation_size_words(result.evaluate_at):
        facts.append(apart)
    if peak_bytes is not None:
        facts.append(f"peak {format_share(peak_bytes, result.budget_bytes)}")
    if rate is not None:
        facts.append(f"{format_rate(rate)} samples/s")
    facts.append(format_seconds(result.seconds))
    tried = candidate_words(result.reason, result.settings)
    return "  ".join([*facts, tried] if tried else facts)


def evaluation_size_words(evaluate_at: int | None) -> str:
    """At which size a probe evaluates, where that is not the one it trains at; empty where it is."""
    if evaluate_at is None:
        return ""
    return f"evaluation at {evaluate_at}" if evaluate_at else "no evaluation"


def candidate_words(reason: Reason, settings: Settings) -> str:
    """What is tried where settings are searched; empty for every other probe."""
    return settings_words(settings, Settings()) if reason.of_candidate or reason is Reason.COMPARE else ""


def probe_table(probes: Sequence[ProbeResult], own: Settings | None = None) -> tuple[str, ...]:
    """All probes, oldest first, under a line of headings.

    ``own``: the user's settings, where others were searched; each probe then says what it had instead. Where any probe
    evaluates at a size of its own, all say at which.
    """
    apart = any(probe.evaluate_at is not None for probe in probes)
    headings = [*_HEADINGS, *(["evaluation"] if apart else []), *([] if own is None else ["settings"])]
    rows: list[tuple[str, ...]] = [tuple(headings)]
    for number, probe in enumerate(probes, start=1):
        rows.append(
            (
                str(number),
                str(probe.batch_size),
                FORMS[probe.form],
                REASONS[probe.reason],
                format_bytes(probe.measurement.peak_device_bytes),
                format_rate(probe.samples_per_second),
                format_seconds(probe.seconds),
                failure_words(probe),
                *([_evaluation_cell(probe)] if apart else []),
                *([] if own is None else [settings_words(probe.settings, own)]),
            )
        )
    return align(rows, right=_NUMBERS)


def _evaluation_cell(probe: ProbeResult) -> str:
    if probe.evaluate_at is not None:
        return f"at {probe.evaluate_at}" if probe.evaluate_at else "none"
    ran = probe.measurement.evaluated or (probe.failure is not None and probe.failure.phase is Phase.EVALUATE)
    return f"at {probe.batch_size}" if ran else "-"


def failure_lines(probe: ProbeResult) -> tuple[str, ...]:
    """Everything known of a failure, for ``-v``; empty for a probe that fits."""
    failure = probe.failure
    if failure is None:
        return ()
    lines = [f"batch {probe.batch_size}: {failure_words(probe)}"]
    raised = failure.error_type.removeprefix("builtins.")
    lines += _indented(f"{raised}: {failure.message}" if raised else failure.message)
    if failure.requested_bytes is not None:
        free = f", {format_bytes(failure.free_bytes)} were free" if failure.free_bytes is not None else ""
        lines.append(f"  asked for {format_bytes(failure.requested_bytes)}{free}")
    if failure.exit_code:  # 0 where the process told of its failure by itself
        lines.append(f"  exit code {failure.exit_code}")
    if failure.hint:
        lines.append(f"  hint: {failure.hint}")
    lines += _indented(failure.traceback)
    if probe.stderr_tail and not failure.traceback:
        lines.append("  end of its stderr:")
        lines += _indented(probe.stderr_tail)
    return tuple(lines)


def _indented(text: str) -> list[str]:
    return [f"  {line}".rstrip() for line in text.splitlines()]
