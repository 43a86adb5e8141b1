"""Memory for a report: by kind over the batch size, and over one training step."""

from collections.abc import Sequence

from autotune.memory.forecast import Forecast
from autotune.memory.timeline import USES, foretold_timeline, recorded_timeline, uses_at_peak
from autotune.model import Form, Outcome, ProbeResult, Reason, SearchRecord, Settings
from autotune.report.baseline import TRAINING
from autotune.report.explain import of_memory
from autotune.report.explanation import USES as USE_WORDS
from autotune.report.memory_split import memory_split
from autotune.report.page.view import MemoryBySize, MemoryInStep, PhasePeak, SizeMark, SizeParts, Verdict
from autotune.report.setting_words import settings_words
from autotune.report.words import failure_words
from autotune.search.apart import Apart, plain
from autotune.search.guide import recorded

MOST_SIZES = 60
_FORETOLD_SIZES = 12
OUTSIDE = "outside the allocator (context, libraries)"
UNUSED = "held beyond it (cache, fragments)"
_KINDS = (
    "process and libraries",
    "weights",
    "buffers",
    "gradients",
    "optimizer state",
    "batch",
    "activations and temporaries",
    UNUSED,
)
"""Of what is measured, as ``memory_split`` names its parts; in the order that they are stacked: what does not grow first."""


def memory_by_size(
    record: SearchRecord, probes: Sequence[ProbeResult], settings: Settings, own: Settings
) -> MemoryBySize | None:
    """Every size that ran with these settings; None where none did.

    Args:
        record: the search.
        probes: of the search.
        settings: those of the answer, or the user's own.
        own: the user's.
    """
    by_size: dict[int, list[ProbeResult]] = {}
    for probe in Apart.of(probes).training:
        trains = probe.form in TRAINING and probe.reason is not Reason.TRACE
        if trains and probe.outcome is not Outcome.UNRELIABLE and plain(probe.settings) == plain(settings):
            by_size.setdefault(probe.batch_size, []).append(probe)
    telling = {size: deciding(there) for size, there in sorted(by_size.items())}
    if not telling:
        return None
    shown = _mostdeciding(telling, record)
    foretold = _forecast(record, probes, settings)
    kinds, parts = _foretold(foretold, record, shown) if foretold else _measured(shown, record)
    return MemoryBySize(
        settings=settings_words(settings, own),
        foretold=foretold is not None,
        kinds=kinds,
        parts=parts,
        marks=tuple(_mark(probe, record) for probe in shown.values()),
        left_out=len(telling) - len(shown),
        budget_bytes=record.budget.limit_bytes,
    )


def memory_in_step(
    record: SearchRecord, probes: Sequence[ProbeResult], settings: Settings, batch_size: int | None
) -> MemoryInStep | None:
    """The step of a size; None where nothing is known of any step.

    Where the answer's settings were not recorded (each set of settings makes other allocations), the newest recording of
    others is shown as it is.
    """
    here = [p for p in probes if p.batch_size == batch_size and plain(p.settings) == plain(settings)]
    measured = deciding([p for p in here if p.measurement.phases]) if any(p.measurement.phases for p in here) else None
    foretold = _forecast(record, probes, settings)
    timeline, of = None, settings
    if foretold is not None and batch_size is not None:
        timeline = foretold_timeline(foretold, batch_size)
    else:
        traced = [p for p in probes if p.trace is not None]
        for probe in reversed(traced):
            assert probe.trace is not None
            timeline, of = recorded_timeline(probe.trace), probe.settings
            if timeline is not None:
                break
    if timeline is None and measured is None:
        return None
    return MemoryInStep(
        timeline=timeline,
        settings=settings_words(of, record.plan.settings),
        foretold=foretold is not None and batch_size is not None,
        phases=tuple(
            PhasePeak(phase=one.phase, allocated_bytes=one.peak_allocated_bytes, reserved_bytes=one.peak_reserved_bytes)
            for one in (measured.measurement.phases if measured else ())
        ),
        phases_batch=measured.batch_size if measured else None,
    )


def deciding(probes: Sequence[ProbeResult]) -> ProbeResult:
    """Of the probes of one size the one that decides, as the search sees it: the newest long one, else the newest."""
    return next((probe for probe in reversed(probes) if probe.form is Form.LONG), probes[-1])


def _mostdeciding(telling: dict[int, ProbeResult], record: SearchRecord) -> dict[int, ProbeResult]:
    """All sizes, or of too many the answer's and others at equal distances."""
    if len(telling) <= MOST_SIZES:
        return telling
    answer = record.answer
    named = {answer.max_batch, answer.refuted_at, answer.recommended_batch} if answer else set()
    sizes, room = list(telling), MOST_SIZES - len(named)
    spread = {sizes[at * (len(sizes) - 1) // (room - 1)] for at in range(room)}
    return {size: probe for size, probe in telling.items() if size in spread or size in named}


def _mark(probe: ProbeResult, record: SearchRecord) -> SizeMark:
    safe = Verdict.PREDICTED if record.plan.predicted else Verdict.CERTIFIED
    long = probe.fits and probe.form is Form.LONG
    return SizeMark(
        batch_size=probe.batch_size,
        verdict=safe if long else Verdict.RAN if probe.fits else Verdict.REFUTED,
        peak_bytes=probe.measurement.peak_device_bytes or probe.measurement.peak_allocated_bytes,
        words=safe.value if long else failure_words(probe),
    )


def _measured(shown: dict[int, ProbeResult], record: SearchRecord) -> tuple[tuple[str, ...], tuple[SizeParts, ...]]:
    """By the probe of each size that ran to its end; what is not taken apart is left out."""
    split: dict[int, dict[str, int]] = {}
    for size, probe in shown.items():
        if not probe.fits:
            continue
        seen = probe.measurement
        shares = memory_split(probe, record.workload).shares
        by_kind = {share.part.value: share.size_bytes for share in shares if share.size_bytes and not share.expected}
        if seen.peak_reserved_bytes is not None and seen.peak_allocated_bytes is not None:
            by_kind[UNUSED] = max(0, seen.peak_reserved_bytes - seen.peak_allocated_bytes)
        if by_kind:
            split[size] = by_kind
    return _columns(_KINDS, split)


def _foretold(
    foretold: Forecast, record: SearchRecord, shown: dict[int, ProbeResult]
) -> tuple[tuple[str, ...], tuple[SizeParts, ...]]:
    """At equal distances up to the largest size that ran."""
    largest, count = max(shown), _FORETOLD_SIZES
    sizes = sorted({max(1, largest * at // (count - 1)) for at in range(count)})
    outside = max(0, record.budget.limit_bytes - foretold.cap_bytes)
    split = {}
    for size in sizes:
        split[size] = {USE_WORDS[use]: held for use, held in uses_at_peak(foretold, size).items()}
        split[size][OUTSIDE] = outside
    return _columns((OUTSIDE, *(USE_WORDS[use] for use in USES)), split)


def _columns(order: tuple[str, ...], split: dict[int, dict[str, int]]) -> tuple[tuple[str, ...], tuple[SizeParts, ...]]:
    kinds = tuple(kind for kind in order if any(there.get(kind) for there in split.values()))
    return kinds, tuple(
        SizeParts(batch_size=size, by_kind=tuple(there.get(kind, 0) for kind in kinds))
        for size, there in sorted(split.items())
    )


def _forecast(record: SearchRecord, probes: Sequence[ProbeResult], settings: Settings) -> Forecast | None:
    """From a recording of these settings; one of any allocator configuration will do."""
    alike = [p for p in Apart.of(probes).training if of_memory(p.settings) == of_memory(settings)]
    return recorded(alike, settings.allocator, varies=record.workload.varies) if alike else None
