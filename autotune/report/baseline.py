"""What the user's own settings reach, to compare with those that are recommended."""

from collections.abc import Iterable

from autotune.model import Form, Outcome, ProbeResult, SearchResult
from autotune.report.evidence import certificate
from autotune.search.apart import Apart, plain

_PRECISE = frozenset({Form.LONG, Form.TIMED})
"""Forms with enough timed steps; what short ones say counts only where there is nothing else."""
TRAINING = _PRECISE | {Form.SHORT}


def baseline(result: SearchResult) -> ProbeResult | None:
    """The fastest probe of the user's own settings at a size that they are safe at; None if they were never timed.

    A size is not safe for them if any probe of it failed, be it at another accumulation; one that failed in evaluation, at
    a size that is not the answer's, says nothing of training. Accumulation is no matter of speed here: it follows from the
    effective batch, whatever else is changed.
    """
    own = plain(result.plan.settings)
    probes = [p for p in Apart.of(result.probes).training if plain(p.settings) == own]
    unsafe = {p.batch_size for p in probes if not p.fits and p.outcome is not Outcome.UNRELIABLE}
    return fastest(p for p in probes if p.batch_size not in unsafe)


def fastest(probes: Iterable[ProbeResult]) -> ProbeResult | None:
    """The probe with the highest throughput among those that fit, precise ones first; None if none was timed."""
    timed = [p for p in probes if p.fits and p.form in TRAINING and p.samples_per_second is not None]
    precise = [p for p in timed if p.form in _PRECISE]
    return max(precise or timed, key=lambda p: p.samples_per_second or 0.0, default=None)


def throughput(result: SearchResult) -> float | None:
    """Samples per second of the recommendation: as the probe that certified it was, or one that was made to be timed.

    The faster of the two counts, since whatever else uses the machine only ever slows a probe down.
    """
    size = result.answer.recommended_batch
    here = [p for p in result.probes if p.batch_size == size and p.settings == result.settings and p.fits]
    speeds = [p.samples_per_second for p in here if p.form is Form.TIMED]
    speeds.append((certificate(result, size) or result.certificate).samples_per_second)
    return max((speed for speed in speeds if speed is not None), default=None)


def is_own(result: SearchResult) -> bool:
    """Whether the answer's settings are the user's own, accumulation left aside."""
    return plain(result.settings) == plain(result.plan.settings)
