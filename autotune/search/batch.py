"""The batch finder: from the history of probes to the next one, until the largest safe size is certified.

Everything is recomputed from the history on each call: an interrupted search resumes by being asked again.

The way of a search: a recording where the device has one, or else a first size that fits (`first_fit`); which sizes are
legal (`legal`); the limit the memory models expect (`guide`); certifying it and refuting the next size, with corrections
(`narrow`, `bracket`); choosing the size to recommend (`recommend`). Without surprises that takes three probes where the
allocator was recorded, and at most 2·log2(limit) + 6 from the smallest size where nothing can be foretold.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from autotune.errors import UsageError
from autotune.memory.ladder import FIRST_MULTIPLES
from autotune.model import Answer, Cause, Form, Outcome, ProbeResult, Question, Reason, Settings, Stop
from autotune.search.bracket import Bracket, bracket, holes
from autotune.search.evidence import Evidence, Standing, read
from autotune.search.first_fit import first_fit
from autotune.search.guide import guess, predict
from autotune.search.legal import legal_step, telling_size
from autotune.search.narrow import narrow
from autotune.search.recommend import of_certified, recommend
from autotune.search.trouble import hopeless, long_form_trouble

LARGEST_SIZE = 1 << 24
"""Bound where neither the user nor the data set sets one: a workload whose memory does not depend on the batch must
not grow for ever. More samples than any micro-batch in use."""

NOT_SEARCHED = "not_searched"
"""``limited_by`` of an answer, or its evaluation, where nothing larger was tried, or not to its end."""


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
    trace: bool = False
    """Begin by recording what the allocator does at a few small sizes, to foretell the limit from."""
    settings: Settings = field(default_factory=Settings)
    """What every probe runs with."""
    varies: bool = False
    """The long form trains on samples of varying length."""
    noise_bytes: int = 0
    """The peak of the same steps differs by so much from run to run."""
    shown: str = "certified"
    """What a size is, in words, that was safe in the long form. Where one process stands in for others that is less."""

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
        reply = self._ask(history)
        return replace(reply, settings=self.settings) if isinstance(reply, Question) else reply

    def conclude(self, history: Sequence[ProbeResult]) -> Stop | None:
        """The best answer that stands, for when time is out: where a size is to be recommended, the best of those that are
        certified (``Answer.complete`` is False). Where the limit alone is asked for, one that was not found is no answer.
        """
        reply = self.ask(history)
        if isinstance(reply, Stop):
            return reply if reply.answer is not None else None
        evidence = read(self._known(history))
        if not self.recommend or not evidence.certified:
            return None
        low = evidence.certified[-1]
        high = next((f for f in evidence.failed if f.size > low and f.is_ceiling), None)
        step = legal_step(evidence, self.multiple_of)
        answer = Answer(
            max_batch=low,
            refuted_at=high.size if high else None,
            recommended_batch=of_certified(evidence),
            limited_by=str(high.cause) if high else NOT_SEARCHED,
            step=step,
            holes=holes(evidence, step, low),
            settings=self.settings,
            complete=False,
        )
        return Stop(reason=_reason(answer, len(history), self.shown), answer=answer)

    def _known(self, history: Sequence[ProbeResult]) -> list[ProbeResult]:
        """Those within the bounds: an older search with others may have left probes this one would never ask for."""
        limit, _ = self._limit(None)
        return [p for p in history if p.batch_size % self.multiple_of == 0 and p.batch_size <= limit]

    def _ask(self, history: Sequence[ProbeResult]) -> Question | Stop:
        limit, _ = self._limit(None)
        known = self._known(history)
        evidence = read(known)
        if not evidence.findings:
            return self._record(self.multiple_of, limit) or Question(
                batch_size=self._start(limit), form=Form.SHORT, reason=Reason.START
            )
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
        again = self._record(step, limit)
        if again is not None and step != self.multiple_of and _recording_failed(known):
            return again
        found = bracket(evidence, step, bound)
        expected = guess(
            evidence,
            known,
            self.settings.allocator,
            low=found.low,
            high=found.high.size if found.high else None,
            step=step,
            bound=bound,
            noise_bytes=self.noise_bytes,
            varies=self.varies,
        )
        return narrow(evidence, known, found, expected, step=step, bound=bound, form=form) or self._conclude(
            evidence, known, found, step, bound, limited_by
        )

    def _record(self, unit: int, limit: int) -> Question | None:
        """The recording probe for sizes that are multiples of ``unit``, if there is room for one."""
        first, second = (n * unit for n in FIRST_MULTIPLES)
        if not self.trace or second > limit:
            return None
        return Question(batch_size=first, form=Form.SHORT, reason=Reason.TRACE, trace_unit=unit, trace_largest=limit)

    def _start(self, limit: int) -> int:
        wanted = min(self.start_batch or 1, limit)
        return max(self.multiple_of, wanted // self.multiple_of * self.multiple_of)

    def _limit(self, data_end: int | None) -> tuple[int, str]:
        """The largest size allowed, before rounding, and what sets it."""
        limits = [(n, "data_set") for n in (self.data_set_size, data_end) if n is not None]
        limits.append((LARGEST_SIZE if self.max_batch is None else self.max_batch, "max_batch"))
        return min(limits)

    def _conclude(
        self,
        evidence: Evidence,
        known: Sequence[ProbeResult],
        found: Bracket,
        step: int,
        bound: int,
        limited_by: str,
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
            settings=self.settings,
            prediction=predict(
                known, self.settings.allocator, answer=found.low, step=step, bound=bound, varies=self.varies
            ),
        )
        return Stop(reason=_reason(answer, len(known), self.shown), answer=answer)


def _recording_failed(known: Sequence[ProbeResult]) -> bool:
    """Whether the one recording so far met a size the workload rejects, so that another spacing is worth a second one."""
    recordings = [p for p in known if p.reason is Reason.TRACE]
    return len(recordings) == 1 and recordings[0].outcome is Outcome.WORKLOAD_ERROR


def _reason(answer: Answer, probes: int, shown: str) -> str:
    if answer.refuted_at is not None:
        end = f"{answer.refuted_at} is refuted ({answer.limited_by})"
    elif answer.limited_by == NOT_SEARCHED:
        end = "no larger one is refuted"
    elif answer.limited_by == str(Cause.DATA_SET):
        end = "the data set has no more samples for a larger one"
    else:
        end = "no larger one is allowed"
    found = f"Batch {answer.max_batch} is {shown} and {end}, after {probes} probes."
    return found if answer.complete else f"{found} Time ran out before the search was complete."
