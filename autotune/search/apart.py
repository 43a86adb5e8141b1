"""What a history says of training and what it says of evaluation, told apart. Pure.

A probe trains at one size and evaluates at another. To the strategy that looks for the largest training batch the
evaluation is none of its business; to one that looks for the largest evaluation batch its size is the batch size.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from autotune.memory.without_evaluation import without_evaluation
from autotune.model import Form, Outcome, Phase, ProbeResult, Reason, Settings
from autotune.search.evidence import Evidence, read

_EVALUATES = frozenset({Form.SHORT, Form.LONG, Form.EVALUATE})
"""Forms with an evaluation in them."""


def failed_in_evaluation(probe: ProbeResult) -> bool:
    """True for a failure of evaluation that a smaller batch of evaluation may cure: training ran up to there.

    An error of the user's code is not one: it concerns both sizes, as the fault of a workload does.
    """
    failure = probe.failure
    if failure is None or failure.phase is not Phase.EVALUATE:
        return False
    return probe.outcome.is_ceiling or failure.confirm


def plain(settings: Settings) -> Settings:
    """Accumulation left aside: an evaluation has none, and that of a training follows from its size."""
    return replace(settings, accumulate=1)


@dataclass(frozen=True)
class Apart:
    """One history, taken apart."""

    history: tuple[ProbeResult, ...]

    @classmethod
    def of(cls, history: Sequence[ProbeResult]) -> "Apart":
        """Take a history apart."""
        return cls(tuple(history))

    @cached_property
    def limited(self) -> frozenset[Settings]:
        """Plain settings under which evaluation has failed at some size, or has to be tried again."""
        seen = {plain(p.settings) for p in self.history if failed_in_evaluation(p) or p.form is Form.EVALUATE}
        return frozenset(s for s in seen if any(not f.probe.fits for f in read(self.evaluations(s)).findings.values()))

    @cached_property
    def training(self) -> tuple[ProbeResult, ...]:
        """As if there were no evaluation, once one has failed: what failed in it says nothing of training, and neither
        does the memory it took, which grows with another size. Before that, everything."""
        kept = [p for p in self.history if p.form is not Form.EVALUATE and not failed_in_evaluation(p)]
        return tuple(_without_evaluation(p) for p in kept) if self.limited else tuple(kept)

    def evaluations(self, settings: Settings, beside: tuple[int, Settings] | None = None) -> tuple[ProbeResult, ...]:
        """The evaluations under plain settings, as probes whose batch size is that of evaluation.

        A long probe certifies its evaluation; with ``beside`` only one that trained at this size under these settings
        does, and the failures of other long probes are left out: who asked for them goes on with a smaller one.
        """
        found = []
        for probe in self.history:
            if plain(probe.settings) != settings or probe.form not in _EVALUATES or not _size(probe):
                continue
            long = probe.form is Form.LONG
            certifies = long and (beside is None or (probe.batch_size, probe.settings) == beside)
            if long and not certifies and probe.evaluate_at is not None and not probe.fits:
                continue
            if probe.form is Form.EVALUATE or failed_in_evaluation(probe) or (probe.fits and probe.evaluated_at):
                found.append(_as_evaluation(probe, Form.LONG if certifies else Form.SHORT))
        return tuple(found)

    def known_good(self, settings: Settings) -> int:
        """The largest size below all that failed at which evaluation ran under plain settings; 0 if there is none."""
        evidence: Evidence = read(self.evaluations(settings))
        lowest = min((f.size for f in evidence.failed if f.is_ceiling or f.confirm), default=None)
        return max((size for size in evidence.good if lowest is None or size < lowest), default=0)

    def trained(self, settings: Settings) -> ProbeResult:
        """The smallest batch that is known to train under plain settings: what evaluations are tried beside.

        Raises:
            ValueError: none is; then no evaluation has failed either.
        """
        ran = [
            p
            for p in self.history
            if plain(p.settings) == settings
            and p.form in (Form.SHORT, Form.LONG, Form.TIMED)
            and (p.fits or failed_in_evaluation(p))
        ]
        return min(ran, key=lambda probe: probe.batch_size)

    def paired(self, batch_size: int, settings: Settings) -> int | None:
        """The largest evaluation that ran in a long probe at this training size; None if there was none."""
        sizes = [
            p.evaluated_at
            for p in self.history
            if p.batch_size == batch_size and p.settings == settings and p.form is Form.LONG and p.fits
        ]
        return max((size for size in sizes if size), default=None)


def _size(probe: ProbeResult) -> int:
    return probe.batch_size if probe.evaluate_at is None else probe.evaluate_at


def _as_evaluation(probe: ProbeResult, form: Form) -> ProbeResult:
    seen = probe.measurement
    phases = tuple(m for m in seen.phases if m.phase is Phase.EVALUATE)
    peak = phases[0].peak_allocated_bytes if phases else seen.peak_allocated_bytes
    return replace(
        probe,
        batch_size=_size(probe),
        form=form,
        reason=probe.reason if probe.form is Form.EVALUATE else Reason.START,
        settings=plain(probe.settings),
        evaluate_at=None,
        trace=None,
        measurement=replace(
            seen, phases=phases, peak_allocated_bytes=peak, observed_batch=seen.evaluated_batch, step_seconds=()
        ),
    )


def _without_evaluation(probe: ProbeResult) -> ProbeResult:
    seen = probe.measurement
    phases = tuple(m for m in seen.phases if m.phase is not Phase.EVALUATE)
    if len(phases) < len(seen.phases) and phases and probe.outcome is Outcome.FITS:
        seen = replace(seen, peak_allocated_bytes=max(m.peak_allocated_bytes for m in phases))
    trace = None if probe.trace is None else without_evaluation(probe.trace)
    # What was foretold of training and evaluation together was no prediction of training.
    both = probe.reason is Reason.PREDICTED and probe.evaluate_at is None
    reason = Reason.GROW if both else probe.reason
    return replace(probe, reason=reason, measurement=replace(seen, phases=phases), trace=trace)
