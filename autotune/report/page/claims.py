"""How sure an answer is: what was shown by execution, and what was not."""

from collections.abc import Iterator

from autotune.model import Form, ProbeResult, SearchResult
from autotune.report.advice import SPREAD_LIMIT
from autotune.report.baseline import is_own
from autotune.report.evaluated import NOT_PROBED, evaluation_words
from autotune.report.evidence import certificate
from autotune.report.page.view import Claim
from autotune.report.ranks import where_run
from autotune.report.words import failure_words, format_share, limit_words
from autotune.search.apart import plain
from autotune.units import counted


def claims(result: SearchResult) -> tuple[Claim, ...]:
    """What the answer rests on, the most important first."""
    return tuple(_claims(result))


def _claims(result: SearchResult) -> Iterator[Claim]:
    answer = result.answer
    largest = certificate(result, answer.max_batch)
    if result.plan.predicted:
        yield Claim(
            text=f"Predicted: one process stood in for {result.plan.ranks} ranks, which were not run.", holds=False
        )
    for size in dict.fromkeys((answer.recommended_batch, answer.max_batch)):
        yield _certified(size, certificate(result, size))
    if largest is not None:
        yield _refuted(result)
    if not is_own(result):
        yield _compared(result)
    proof = certificate(result, answer.recommended_batch)
    if proof is not None:
        yield from _steady(proof)
    if largest is not None:
        words = evaluation_words(result)
        if words:
            yield Claim(text=f"Evaluation: {words}.", holds=words != NOT_PROBED)
    if not answer.complete:
        yield Claim(text="Time ran out before the search was complete; more may be possible.", holds=False)


def _certified(size: int, probe: ProbeResult | None) -> Claim:
    if probe is None:
        return Claim(text=f"The ledger does not hold the probe that certified batch {size}.", holds=False)
    seen = probe.measurement
    steps = counted(seen.steps_executed, "training step")
    within = format_share(seen.peak_device_bytes, probe.budget_bytes)
    return Claim(text=f"Batch {size} ran {steps} {where_run(probe)}, with a peak of {within}.", holds=True)


def _refuted(result: SearchResult) -> Claim:
    refutation, answer = result.refutation, result.answer
    if refutation is None:
        return Claim(text=f"No larger batch is known to fail: {limit_words(answer.limited_by)}.", holds=False)
    return Claim(text=f"Batch {refutation.batch_size} ran and failed: {failure_words(refutation)}.", holds=True)


def _compared(result: SearchResult) -> Claim:
    same = any(p.form is Form.COMPARE and p.fits and plain(p.settings) == plain(result.settings) for p in result.probes)
    if same:
        return Claim(
            text="The settings train the same as yours: compared on the same seeded steps, from the same weights.",
            holds=True,
        )
    return Claim(text="Whether these settings train the same as yours was not compared.", holds=False)


def _steady(probe: ProbeResult) -> Iterator[Claim]:
    typical_s, spread_s = probe.measurement.median_step_seconds, probe.measurement.spread_step_seconds
    if not typical_s or spread_s is None:
        return
    share = spread_s / typical_s
    percent = f"{100 * share:.0f} %" if share >= 0.005 else "less than 1 %"
    if share > SPREAD_LIMIT:
        yield Claim(text=f"Step times differ by {percent} between quartiles: the speed is uncertain.", holds=False)
    else:
        yield Claim(text=f"Step times differ by {percent} between quartiles.", holds=True)
