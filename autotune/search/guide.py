"""What the memory models say about the limit, given what is known so far. They propose; only probes decide.

Where the allocator's history was recorded it is replayed (``memory.forecast``); elsewhere a hull is laid through the peaks
of the probes that ran (``memory.hull``).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.memory.forecast import Correction, Forecast, Seen, forecast
from autotune.memory.hull import NEAREST_FACTOR, Censored, Hull, Sample, fit_hull
from autotune.model import Cause, Form, Prediction, ProbeResult, Reason
from autotune.search.evidence import Evidence, Finding, Standing

_OUT_OF_MEMORY = frozenset({Cause.DEVICE_MEMORY, Cause.MASKED_MEMORY, Cause.HOST_MEMORY})
_BEYOND_STEPS = 2
_BEYOND_SHARE = 0.01
"""How far above the answer a size behind a hole is worth a probe: two steps, or one per cent."""
_MEMORY_CAUSES = _OUT_OF_MEMORY | {Cause.THRASHING, Cause.OVER_BUDGET, Cause.SPILLED}


@dataclass(frozen=True, slots=True)
class Guess:
    """Where a model expects the limit."""

    size: int
    """Largest legal size expected to be safe. Equal to one that fits already, it says that the next one is not."""
    certify: bool
    """Exact enough to go there at once with the probe that certifies."""
    wide: bool = False
    """Little more than a guess."""
    hoped: int = 0
    """Largest legal size that may be safe if all doubts about the model turn out well; 0 = there are none."""
    beyond: int | None = None
    """A size above the failure next to ``low`` that is expected to be safe all the same; None = there is none near."""
    spread: int = 1
    """So many samples more or less make no difference that could be told from noise."""


def recorded(history: Sequence[ProbeResult], allocator: str, *, varies: bool) -> Forecast | None:
    """The forecast from the newest recording that can be used, under the budget and memory of the newest probe."""
    traced = [p for p in history if p.trace is not None]
    if not traced:
        return None
    outside_bytes = max((p.measurement.non_pytorch_bytes or 0 for p in history), default=0)
    cap_bytes = history[-1].budget_bytes - outside_bytes
    for probe in reversed(traced):
        assert probe.trace is not None
        foretold = forecast(probe.trace, allocator, cap_bytes, varies)
        if isinstance(foretold, Forecast):
            return foretold
    return None


def guess(
    evidence: Evidence,
    history: Sequence[ProbeResult],
    allocator: str,
    *,
    low: int,
    high: int | None,
    step: int,
    bound: int,
    noise_bytes: int,
    varies: bool,
) -> Guess | None:
    """Where the limit is expected, at least ``low`` and below ``high``; None where nothing can be said.

    Args:
        evidence: read from ``history``.
        low: the largest size that fits.
        high: the smallest above it that does not; None = none is known.
        step: spacing of legal sizes.
        bound: largest size allowed.
        noise_bytes: the peak of the same steps differs by so much from run to run.
        varies: whether the long form trains on samples of varying length.
    """
    top = bound if high is None else high - step
    foretold = recorded(history, allocator, varies=varies)
    if foretold is not None:
        correction = Correction.by(foretold, _seen(evidence, foretold.program.skeleton_batch))
        cap_at = correction.cap_at
        certified = evidence.findings[low].standing is Standing.CERTIFIED
        if high is None and certified and low < top and not foretold.expect(low + step, cap_at(low + step)).safe:
            return Guess(low, certify=True)  # as expected: nothing to look for
        if high is not None and top == low:  # closed: what is behind the failure is all that is left to foretell
            sharp = cap_at(low) == foretold.cap_bytes and not foretold.program.uncertain_bytes(low)[1]
            return Guess(low, certify=True, beyond=_beyond(foretold, low, high, step, bound) if sharp else None)
        size = foretold.largest(step, top, cap_at)
        doubt_bytes = 0 if correction.misled else foretold.program.uncertain_bytes(size)[1]
        sure = foretold.largest(step, top, lambda n: cap_at(n) - doubt_bytes) if doubt_bytes else size
        return Guess(max(low, sure), certify=True, hoped=size)
    if high is not None and evidence.findings[high].cause not in _MEMORY_CAUSES:
        return None  # memory is not what ends here
    measured = evidence.findings[low].probe.measurement
    limit_bytes = measured.allocator_cap_bytes or evidence.findings[low].probe.budget_bytes
    failed = [p for p in history if p.failure is not None and p.failure.cause in _OUT_OF_MEMORY]
    # What is limited need not be what is counted: a heap may be cut up, so that memory runs out before all of it is used.
    limit_bytes = min([limit_bytes, *(needed - 1 for p in failed if (needed := _needed(p)) is not None)])
    misled = evidence.short_form_misled  # what the long form needs is told by its own probes, beside the short ones
    hull = fit_hull(
        [
            Sample(p.batch_size, {m.phase: m.peak_allocated_bytes for m in p.measurement.phases})
            for p in history
            if p.fits and p.measurement.phases and not (misled and p.form is Form.LONG)
        ],
        [
            Censored(p.batch_size, max(limit_bytes + 1, _needed(p) or 0), p.failure.phase if p.failure else None)
            for p in failed
            if not (misled and p.form is Form.LONG)
        ],
        noise_bytes=noise_bytes,
    )
    more_bytes = _more_in_long_form(evidence, hull, limit_bytes) if hull is not None and misled else 0
    if hull is None or more_bytes is None:
        return None
    spread = _spread(hull, low, noise_bytes)
    limit_bytes -= more_bytes + (noise_bytes if spread > step else 0)
    found = hull.largest_within(limit_bytes, step, top)
    far = high is None and found.batch_size >= NEAREST_FACTOR * low  # as far as a hull may go, not where the limit is
    return Guess(max(low, found.batch_size), certify=False, wide=found.wide or far, spread=spread)


def _more_in_long_form(evidence: Evidence, hull: Hull, limit_bytes: int) -> int | None:
    """By how much the long form's peaks are above the short form's, of which the hull is; None where that does not say which
    sizes ran in the long form and which did not.

    A fresh process, with a checkpoint in the middle, needs a little more than a fork of one: on the CPU 7 MiB of 500.
    """
    ran = [evidence.findings[size] for size in evidence.certified]
    more_bytes = max((_peak_bytes(f) - hull.peak_bytes(f.size) for f in ran), default=0)
    largest_bytes = max((hull.peak_bytes(f.size) for f in ran), default=limit_bytes)
    failed_bytes = min(hull.peak_bytes(f.size) for f in evidence.failed if f.contradicted)
    return more_bytes if largest_bytes <= limit_bytes - more_bytes < failed_bytes else None


def _peak_bytes(finding: Finding) -> int:
    return finding.probe.measurement.peak_allocated_bytes or 0


def _beyond(foretold: Forecast, low: int, high: int, step: int, bound: int) -> int | None:
    """The largest of the safe sizes right behind a hole that was foretold as it was found.

    How native segments fall into place is chance near the limit: GPT-2 with checkpointing and texts of different length
    is foretold to train at 49 and 51 under 40 GiB of an H200, and not at 50.
    """
    if not foretold.expect(low).safe or foretold.expect(high).safe:
        return None
    last = min(bound, low + max(_BEYOND_STEPS * step, int(_BEYOND_SHARE * low)))
    size = next((size for size in range(high + step, last + 1, step) if foretold.expect(size).safe), None)
    while size is not None and size + step <= bound and foretold.expect(size + step).safe:
        size += step
    return size


def _spread(hull: Hull, low: int, noise_bytes: int) -> int:
    """Samples that noise hides, by what a sample takes around and above ``low``."""
    rise_bytes = hull.peak_bytes(2 * low) - hull.peak_bytes(low)
    return max(1, noise_bytes * low // rise_bytes) if rise_bytes > noise_bytes else 1


def predict(
    history: Sequence[ProbeResult], allocator: str, *, answer: int, step: int, bound: int, varies: bool
) -> Prediction | None:
    """What the recording foretold without any correction; None without one."""
    foretold = recorded(history, allocator, varies=varies)
    if foretold is None:
        return None
    there = foretold.expect(answer)
    first = next((p.batch_size for p in history if p.reason is Reason.PREDICTED), None)
    return Prediction(
        limit=foretold.largest(step, bound) if first is None else first,
        recorded_up_to=foretold.program.skeleton_batch,
        allocated_bytes=there.allocated_bytes,
        reserved_bytes=there.reserved_bytes,
    )


def _seen(evidence: Evidence, recorded_up_to: int) -> list[Seen]:
    """Long probes of sizes beyond the recording that ran, or failed by memory."""
    seen = []
    for finding in evidence.findings.values():
        if finding.size <= recorded_up_to or finding.probe.form is not Form.LONG:
            continue
        if finding.standing is Standing.CERTIFIED:
            seen.append(Seen(finding.size, True, finding.probe.measurement.peak_allocated_bytes))
        elif finding.standing is Standing.FAILED and finding.cause in _MEMORY_CAUSES:
            seen.append(Seen(finding.size, False, None))
    return seen


def _needed(probe: ProbeResult) -> int | None:
    """Bytes an out-of-memory proves to be needed; None where it does not say how much was asked for."""
    failure, allocated = probe.failure, probe.measurement.peak_allocated_bytes
    if failure is None or failure.requested_bytes is None or allocated is None:
        return None
    return allocated + failure.requested_bytes
