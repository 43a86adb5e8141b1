"""Evaluation has a limit of its own: it never lowers that of training.

As long as every evaluation runs, probes evaluate at the size they train at, and evaluation's answer is "at least the
largest training batch". Once one fails although its training ran, its limit is looked for by itself, beside a small
training batch, and from then on training is searched with evaluation at what fits. At the end the two are shown to go
together: a long probe at training's answer with evaluation at its own; where that fails, evaluation's goes down.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from autotune.model import Answer, Cause, Compile, Evaluation, Form, ProbeResult, Question, Settings, Stop
from autotune.search.apart import Apart, plain
from autotune.search.batch import NOT_SEARCHED, BatchFinder
from autotune.search.evidence import read
from autotune.search.loading import Finder

AS_ASKED = "eval_batch"
"""``Evaluation.limited_by`` where evaluation ran at the size asked for."""
_NOT_ITS_FAULT = frozenset({Cause.ENVIRONMENT, Cause.OTHERS})


@dataclass(frozen=True, kw_only=True)
class EvaluationFinder:
    """A strategy: what ``finder`` concludes of training, and which evaluation goes with it. A pure function of the history."""

    finder: Finder
    asked: int | None = None
    """Evaluate at this size, whatever the training batch; None = at that of training, as far as it fits."""
    multiple_of: int = 1
    noise_bytes: int = 0
    """As in ``BatchFinder``."""

    def ask(self, history: Sequence[ProbeResult]) -> Question | Stop:
        """Return the next probe or stop; depends on nothing but the history."""
        apart = Apart.of(history)
        reply = self.finder.ask(apart.training)
        if isinstance(reply, Question):
            return self._evaluating(apart, reply)
        if reply.answer is None:
            return reply
        found = self._settle(apart, reply.answer)
        if isinstance(found, Question):
            return found
        return replace(reply, reason=f"{reply.reason} {_reason(found)}", answer=replace(reply.answer, evaluation=found))

    def conclude(self, history: Sequence[ProbeResult]) -> Stop | None:
        """The best answer that stands, with what is known of evaluation by then (``Answer.complete`` is False)."""
        apart = Apart.of(history)
        stop: Question | Stop | None = self.finder.ask(apart.training)
        if isinstance(stop, Question):
            stop = self.finder.conclude(apart.training)
        if stop is None or stop.answer is None:
            return None
        known = _so_far(apart, stop.answer)
        return replace(stop, answer=replace(stop.answer, evaluation=known, complete=False))

    def _evaluating(self, apart: Apart, question: Question) -> Question | Stop:
        """Training's question with the size of its evaluation, or what has to be known of evaluation before."""
        if question.form not in (Form.SHORT, Form.LONG):
            return question
        if question.trace_unit is not None and (apart.limited or self.asked is not None):
            return replace(question, evaluate_at=0)  # it is to foretell training, at sizes that are not evaluated
        settings = plain(question.settings)
        if settings in apart.limited:
            limit = self._limit(apart, settings)
            if not isinstance(limit, int):
                return limit
        elif apart.limited:
            limit = min(apart.known_good(other) for other in apart.limited)
        else:
            return replace(question, evaluate_at=self.asked)
        if question.form is Form.SHORT and self.asked is None:
            limit = min(limit, question.batch_size)
        return replace(question, evaluate_at=None if limit == question.batch_size else limit)

    def _limit(self, apart: Apart, settings: Settings) -> int | Question | Stop:
        """The largest evaluation that should fit beside training, or the probe that is needed to tell; 0 = none does."""
        known = apart.evaluations(settings)
        reply = self._ask(known, settings, max(probe.batch_size for probe in known))
        if isinstance(reply, Stop):
            if reply.answer is None and _disturbed(known):
                return reply
            return reply.answer.max_batch if reply.answer else 0
        if reply.form is Form.SHORT:
            return _alone(apart, settings, reply)
        evidence = read(known)  # beside training it needs more than alone: what went well there is good enough for now
        return max(evidence.certified, default=reply.batch_size) if evidence.short_form_misled else reply.batch_size

    def _settle(self, apart: Apart, answer: Answer) -> Evaluation | Question:
        """Which evaluation goes with the answer, or the next probe towards it."""
        assert answer.settings is not None, "strategies say for which settings they answer"
        settings, beside = plain(answer.settings), (answer.max_batch, answer.settings)
        so_far = _so_far(apart, answer)
        own = settings in apart.limited
        compiled = answer.settings.compile is not Compile.OFF  # each size would cost a compile
        if so_far.max_batch is not None and (not apart.limited or (compiled and not own)):
            return replace(so_far, limited_by=AS_ASKED) if so_far.max_batch == self.asked else so_far
        known = apart.evaluations(settings, beside)
        bound = self.asked or (max(probe.batch_size for probe in known) if own else answer.max_batch)
        reply = self._ask(known, settings, bound)
        if isinstance(reply, Question):
            if reply.form is Form.SHORT:
                return _alone(apart, settings, reply)
            size = None if reply.batch_size == answer.max_batch else reply.batch_size
            return replace(reply, batch_size=answer.max_batch, settings=answer.settings, evaluate_at=size)
        if reply.answer is None:
            if _disturbed(known):
                return replace(so_far, limited_by=str(_cause(known[-1])))
            return _nothing_fits(known)
        found = reply.answer
        end = found.limited_by if found.refuted_at is not None else NOT_SEARCHED
        if found.max_batch == self.asked:
            end = AS_ASKED
        return Evaluation(max_batch=found.max_batch, refuted_at=found.refuted_at, limited_by=end)

    def _ask(self, known: Sequence[ProbeResult], settings: Settings, bound: int) -> Question | Stop:
        """What the search for the largest batch says of evaluation's."""
        finder = BatchFinder(
            multiple_of=self.multiple_of if self.asked is None else 1,
            max_batch=bound,
            recommend=False,
            settings=settings,
            noise_bytes=self.noise_bytes,
        )
        return finder.ask(known)


def _alone(apart: Apart, settings: Settings, question: Question) -> Question:
    """An evaluation beside a training batch as small as is known to run."""
    beside = apart.trained(settings)
    return Question(
        batch_size=beside.batch_size,
        form=Form.EVALUATE,
        reason=question.reason,
        settings=beside.settings,
        evaluate_at=question.batch_size,
    )


def _so_far(apart: Apart, answer: Answer) -> Evaluation:
    """What is known to go with the answer without any further probe."""
    assert answer.settings is not None
    paired = apart.paired(answer.max_batch, answer.settings)
    known = apart.evaluations(plain(answer.settings), (answer.max_batch, answer.settings))
    failed = [p for p in known if not p.fits and p.batch_size > (paired or 0)]
    lowest = min(failed, key=lambda probe: probe.batch_size, default=None)
    if lowest is None:
        return Evaluation(max_batch=paired, refuted_at=None, limited_by=NOT_SEARCHED)
    return Evaluation(max_batch=paired, refuted_at=lowest.batch_size, limited_by=str(_cause(lowest)))


def _nothing_fits(known: Sequence[ProbeResult]) -> Evaluation:
    failed = min((p for p in known if not p.fits), key=lambda probe: probe.batch_size)
    return Evaluation(max_batch=None, refuted_at=failed.batch_size, limited_by=str(_cause(failed)))


def _cause(probe: ProbeResult) -> Cause:
    assert probe.failure is not None, "a probe that does not fit says why"
    return probe.failure.cause


def _disturbed(known: Sequence[ProbeResult]) -> bool:
    """Whether the machine stood in the way, so that nothing was learned of evaluation."""
    return bool(known) and not known[-1].fits and _cause(known[-1]) in _NOT_ITS_FAULT


def _reason(evaluation: Evaluation) -> str:
    if evaluation.max_batch is None:
        return f"No evaluation fits beside it ({evaluation.limited_by})."
    end = f", {evaluation.refuted_at} is refuted ({evaluation.limited_by})" if evaluation.refuted_at else ""
    return f"Evaluation at {evaluation.max_batch} runs beside it{end}."
