"""What each of the ranks that trained together held: in the probes that the answer rests on, and where one of them failed."""

from collections.abc import Sequence

from autotune.model import ProbeResult, SearchResult, Settings
from autotune.report.evidence import certificate
from autotune.report.page.view import ByRank, Rank
from autotune.report.ranks import what_became_of
from autotune.report.setting_words import settings_words


def by_rank(probes: Sequence[ProbeResult], own: Settings, result: SearchResult | None) -> tuple[ByRank, ...]:
    """The recommended size, the largest, the one that refutes a larger one; without an answer the newest probe that fits and
    the newest that failed. Empty where one process trained.

    Args:
        probes: of the search, oldest first.
        own: the user's settings.
        result: None = there is no answer.
    """
    together = [probe for probe in probes if probe.ranks]
    if result is not None:
        sizes = dict.fromkeys((result.answer.recommended_batch, result.answer.max_batch))
        wanted = [*(certificate(result, size) for size in sizes), result.refutation]
    else:
        newest = [next((p for p in reversed(together) if p.fits is fits), None) for fits in (True, False)]
        wanted = [probe for probe in newest if probe is not None]
    numbers = {id(probe): number for number, probe in enumerate(probes, start=1)}
    return tuple(_of(probe, numbers[id(probe)], own) for probe in wanted if probe is not None and probe.ranks)


def _of(probe: ProbeResult, number: int, own: Settings) -> ByRank:
    return ByRank(
        probe=number,
        batch_size=probe.batch_size,
        settings=settings_words(probe.settings, own),
        fits=probe.fits,
        failed_first=probe.failure.rank if probe.failure else None,
        budget_bytes=probe.budget_bytes,
        ranks=tuple(
            Rank(
                rank=one.rank,
                peak_bytes=one.peak_device_bytes,
                outside_bytes=one.non_pytorch_bytes,
                steps=one.steps_executed,
                what=what_became_of(one, probe),
            )
            for one in probe.ranks
        ),
    )
