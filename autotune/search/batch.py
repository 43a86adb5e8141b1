"""The batch finder: from the history of probes to the next one, until the largest safe size is certified.

Everything is recomputed from the history on each call: an interrupted search resumes by being asked again.

The way of a search: a first size that fits (`first_fit`); which sizes are legal (`legal`); growing until something
fails; bisecting (`bracket`); certifying the largest good size in the long form; choosing the size to recommend
(`recommend`). Without surprises that takes at most 2·log2(limit) + 6 probes from the smallest size.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.errors import UsageError
from autotune.model import Answer, Cause, Form, ProbeResult, Question, Reason, Stop
from autotune.search.bracket import Bracket, Trust, bracket, holes
from autotune.search.evidence import Evidence, Standing, read
from autotune.search.first_fit import first_fit
from autotune.search.legal import legal_step, telling_size
from autotune.search.recommend import recommend
from autotune.search.trouble import hopeless, long_form_trouble

LARGEST_SIZE = 1 << 24
"""Bound where neither the user nor the data set sets one: a workload whose memory does not depend on the batch must
not grow for ever. More samples than any micro-batch in use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFinder:
    """A strategy that finds the largest batch size that is safe in the long form.

    Raises:
        UsageError: on construction, if no batch size satisfies the bounds.
    """

    multiple_of: int = 1
    start_batch: int | None = None
    """First size to try, rounded down to a legal one; None = the smallest."""
    max_batch: int | None = None
    data_set_size: int | None = None
    """Samples in the data set; None where there is none or it has no length."""
    recommend: bool = True

    def __post_init__(self) -> None:
        if self.multiple_of < 1:
            raise UsageError(f"--multiple-of is {self.multiple_of}", hint="Give a number from 1 on.")
        if self.start_batch is not None and self.start_batch < 1:
            raise UsageError(f"--start-batch is {self.start_batch}", hint="Give a number from 1 on.")
        if self.max_batch is not None and self.max_batch < self.multiple_of:
            raise UsageError(
                f"no multiple of {self.multiple_of} is at most --max-batch {self.max_batch}",
                hint="Raise --max-batch or lower --multiple-of.",
            )
        if self.data_set_size is not None and self.data_set_size < self.multiple_of:
            raise UsageError(
                f"the data set has {self.data_set_size} samples, fewer than the smallest batch of {self.multiple_of}",
                hint="Lower --multiple-of or give a larger data set.",
            )

    def ask(self, history: Sequence[ProbeResult]) -> Question | Stop:
        """Return the next probe or stop; depends on nothing but the history."""
        limit, _ = self._limit(None)
        # An older search with other bounds may have left probes this one would never ask for.
        known = [p for p in history if p.batch_size % self.multiple_of == 0 and p.batch_size <= limit]
        evidence = read(known)
        if not evidence.findings:
            return Question(batch_size=self._start(limit), form=Form.SHORT, reason=Reason.START)
        if evidence.open is not None:
            return Question(batch_size=evidence.open.size, form=evidence.open.probe.form, reason=Reason.RETRY)
        early = hopeless(evidence) or long_form_trouble(evidence)
        if early is not None:
            return early
        # A long probe that fits narrows the bracket and certifies; where the short form is known to mislead, a short
        # one would only have to be repeated.
        form = Form.LONG if evidence.short_form_misled else Form.SHORT
        limit, limited_by = self._limit(evidence.data_end)
        if not evidence.good:
            bound = limit // self.multiple_of * self.multiple_of
            return first_fit(evidence, unit=self.multiple_of, bound=bound, form=form)
        telling = telling_size(evidence, self.multiple_of)
        if telling is not None and telling <= limit:
            return Question(batch_size=telling, form=form, reason=Reason.LEGAL_SIZE)
        step = legal_step(evidence, self.multiple_of)
        bound = limit // step * step
        found = bracket(evidence, step, bound)
        return _narrow(evidence, found, step, bound, form) or self._conclude(evidence, known, found, step, limited_by)

    def _start(self, limit: int) -> int:
        wanted = min(self.start_batch or 1, limit)
        return max(self.multiple_of, wanted // self.multiple_of * self.multiple_of)

    def _limit(self, data_end: int | None) -> tuple[int, str]:
        """The largest size allowed, before rounding, and what sets it."""
        limits = [(n, "data_set") for n in (self.data_set_size, data_end) if n is not None]
        limits.append((LARGEST_SIZE if self.max_batch is None else self.max_batch, "max_batch"))
        return min(limits)

    def _conclude(
        self, evidence: Evidence, known: Sequence[ProbeResult], found: Bracket, step: int, limited_by: str
    ) -> Question | Stop:
        """Certify the lower end of a closed bracket, choose the size to recommend, answer."""
        if evidence.findings[found.low].standing is not Standing.CERTIFIED:
            return Question(batch_size=found.low, form=Form.LONG, reason=Reason.CERTIFY)
        recommended: Question | int = found.low
        if self.recommend:
            recommended = recommend(evidence, known, step=step, max_batch=found.low)
        if isinstance(recommended, Question):
            return recommended
        answer = Answer(
            max_batch=found.low,
            refuted_at=found.high.size if found.high else None,
            recommended_batch=recommended,
            limited_by=str(found.high.cause) if found.high else limited_by,
            step=step,
            holes=holes(evidence, step, found.low),
        )
        return Stop(reason=_reason(answer, len(known)), answer=answer)


def _narrow(evidence: Evidence, found: Bracket, step: int, bound: int, form: Form) -> Question | None:
    """The next probe inside the bracket or above it; None once nothing lies between its ends."""
    low, high = found.low, found.high
    if form is Form.LONG and evidence.findings[low].standing is not Standing.CERTIFIED:
        # The short form was wrong further up. Sizes that fitted there are ever farther apart on the way down, so
        # this finds firm ground in few probes; only then is the gap above it worth filling.
        return Question(batch_size=low, form=form, reason=Reason.CERTIFY)
    if high is None:
        if low >= bound:
            return None
        if evidence.data_end is not None:
            return Question(batch_size=bound, form=form, reason=Reason.DATA_SET)
        return Question(batch_size=min(low * _factor(evidence, low), bound), form=form, reason=Reason.GROW)
    if form is Form.SHORT and high.size >= 4 * low:
        # The failure came from a size far above (a large start): the limit may have any order of magnitude.
        factor = _factor(evidence, low)
        factor = factor if low * factor <= high.size // 2 else 2
        return Question(batch_size=low * factor, form=form, reason=Reason.GROW)
    if found.trust is Trust.DOUBTFUL:
        return Question(batch_size=high.size + step, form=form, reason=Reason.NEIGHBOUR)
    middle = low + max(1, (high.size - low) // (2 * step)) * step
    if middle < high.size:
        return Question(batch_size=middle, form=form, reason=Reason.BISECT)
    if found.trust is Trust.LIKELY:
        return Question(batch_size=high.size + step, form=form, reason=Reason.NEIGHBOUR)
    return None


def _factor(evidence: Evidence, low: int) -> int:
    """Grow by 4 while a batch of 8 times the size is expected to stay within the budget; else by 2.

    The expectation is the line through the smallest and the largest size that fitted (through the origin while there is
    only one): what does not depend on the batch, such as weights or the process itself, must not slow the growth.
    """
    high = evidence.findings[low].probe
    peak_bytes = _peak_bytes(high)
    if not peak_bytes:
        return 2
    smallest = min(evidence.good)
    fixed_bytes, per_sample_bytes = 0.0, peak_bytes / low
    first_bytes = _peak_bytes(evidence.findings[smallest].probe)
    if smallest < low and first_bytes:
        per_sample_bytes = max(0.0, (peak_bytes - first_bytes) / (low - smallest))
        fixed_bytes = peak_bytes - per_sample_bytes * low
    return 4 if fixed_bytes + per_sample_bytes * 8 * low < high.budget_bytes else 2


def _peak_bytes(probe: ProbeResult) -> int | None:
    return probe.measurement.peak_device_bytes or probe.measurement.peak_allocated_bytes


def _reason(answer: Answer, probes: int) -> str:
    if answer.refuted_at is not None:
        end = f"{answer.refuted_at} is refuted ({answer.limited_by})"
    elif answer.limited_by == str(Cause.DATA_SET):
        end = "the data set has no more samples for a larger one"
    else:
        end = "no larger one is allowed"
    return f"Batch {answer.max_batch} is certified and {end}, after {probes} probes."
