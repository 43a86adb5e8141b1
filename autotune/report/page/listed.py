"""The probes of a report, and what their failures said; of too many those that tell most."""

from collections.abc import Sequence

from autotune.model import Form, ProbeResult, Settings
from autotune.report.page.view import FailureText, Probe
from autotune.report.probes import evaluation_size_words, failure_lines
from autotune.report.setting_words import settings_words
from autotune.report.words import FORMS, REASONS, failure_words

MOST_PROBES = 1000
MOST_FAILURES = 20
_MOST_TEXT = 6000
"""Characters of one failure: beginning and end of what was printed."""


def listed(probes: Sequence[ProbeResult], own: Settings) -> tuple[tuple[Probe, ...], int]:
    """The probes in their order, and how many are left out. Long probes stay, then the newest."""
    numbered = list(enumerate(probes, start=1))
    kept = sorted(numbered, key=lambda one: (one[1].form is not Form.LONG, -one[0]))[:MOST_PROBES]
    rows = tuple(
        Probe(
            number=number,
            batch_size=probe.batch_size,
            form=FORMS[probe.form],
            reason=REASONS[probe.reason],
            settings=settings_words(probe.settings, own),
            peak_bytes=probe.measurement.peak_device_bytes,
            samples_per_second=probe.samples_per_second,
            seconds=probe.seconds,
            fits=probe.fits,
            outcome=failure_words(probe),
            evaluation=evaluation_size_words(probe.evaluate_at),
        )
        for number, probe in sorted(kept, key=lambda one: one[0])
    )
    return rows, len(probes) - len(rows)


def failures(probes: Sequence[ProbeResult]) -> tuple[tuple[FailureText, ...], int]:
    """The last failure of each kind, the kinds in the order they came up, and how many kinds are left out."""
    kinds: dict[tuple[str, str], list[int]] = {}
    for number, probe in enumerate(probes, start=1):
        if probe.failure is not None:
            kinds.setdefault((failure_words(probe), probe.failure.error_type), []).append(number)
    told = []
    for (words, _), numbers in list(kinds.items())[:MOST_FAILURES]:
        text = "\n".join(failure_lines(probes[numbers[-1] - 1]))
        if len(text) > _MOST_TEXT:
            text = f"{text[: _MOST_TEXT // 2]}\n…\n{text[-_MOST_TEXT // 2 :]}"
        told.append(FailureText(title=words, probes=tuple(numbers), text=text))
    return tuple(told), len(kinds) - len(told)
