"""The batch finder under more than one configuration of the allocator.

Neither kind dominates: on an H200 under 40 GiB native segments hold 27 samples of GPT-2 without retries and expandable ones
25, and of ResNet-50 484 and 485. A recording is replayed under each; only where more is expected is it tried.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from autotune.model import Answer, Cause, Form, ProbeResult, Question, Reason, Settings, Stop
from autotune.search.batch import BatchFinder
from autotune.search.evidence import read
from autotune.search.guide import recorded

_TELLS_OF_PIECES = frozenset({Cause.THRASHING})
"""Causes of a refutation that another way of cutting memory may cure; out-of-memory only where it was fragmented."""


@dataclass(frozen=True, slots=True)
class BestAllocator:
    """A strategy: the limit under the settings asked for, then under others that promise more; the larger one counts."""

    finder: BatchFinder
    others: tuple[str, ...]
    """Allocator configurations."""

    def ask(self, history: Sequence[ProbeResult]) -> Question | Stop:
        """Return the next probe or stop; depends on nothing but the history."""
        first = replace(self.finder, recommend=False)
        best, winner = first.ask(_of(history, first.settings)), first
        if isinstance(best, Question):
            return best
        for allocator in self.others:
            leg = replace(first, settings=replace(first.settings, allocator=allocator), trace=False)
            if best.answer is None or not _promises_more(history, best.answer, first, allocator):
                continue
            next_size = best.answer.max_batch + best.answer.step
            tried = [p for p in history if p.settings == leg.settings and p.batch_size == next_size]
            if not tried:
                return Question(batch_size=next_size, form=Form.LONG, reason=Reason.ALLOCATOR, settings=leg.settings)
            if read(tried).open is not None:  # disturbed by others, say
                return Question(batch_size=next_size, form=Form.LONG, reason=Reason.RETRY, settings=leg.settings)
            if not any(p.fits for p in tried):
                continue
            reply = leg.ask(_of(history, leg.settings))
            if isinstance(reply, Question):
                return reply
            if reply.answer is not None and reply.answer.max_batch > best.answer.max_batch:
                best, winner = reply, leg
        if not self.finder.recommend or best.answer is None:
            return best
        return replace(winner, recommend=True).ask(_of(history, winner.settings))

    def conclude(self, history: Sequence[ProbeResult]) -> Stop | None:
        """The best answer that stands, as of ``BatchFinder``: the largest batch under any allocator."""
        reply = self.ask(history)
        if isinstance(reply, Stop):
            return reply if reply.answer is not None else None
        found = []
        for allocator in (self.finder.settings.allocator, *self.others):
            leg = replace(self.finder, settings=replace(self.finder.settings, allocator=allocator), trace=False)
            stop = leg.conclude(_of(history, leg.settings))
            if stop is not None and stop.answer is not None:
                found.append(replace(stop, answer=replace(stop.answer, complete=False)))
        return max(found, key=_max_batch, default=None)


def _max_batch(stop: Stop) -> int:
    assert stop.answer is not None
    return stop.answer.max_batch


def _of(history: Sequence[ProbeResult], settings: Settings) -> list[ProbeResult]:
    """The probes that say something under these settings: their own, and recordings, which the allocator hardly matters to."""
    return [p for p in history if p.settings == settings or p.trace is not None]


def _promises_more(history: Sequence[ProbeResult], answer: Answer, finder: BatchFinder, allocator: str) -> bool:
    """Whether the next size, which failed, is worth a probe under ``allocator``: the replay expects it to be safe, or it
    failed with enough memory left in pieces."""
    if answer.refuted_at is None:
        return False
    foretold = recorded(history, allocator, varies=finder.varies)
    if foretold is not None and foretold.expect(answer.max_batch + answer.step).safe:
        return True
    failures = [p.failure for p in history if p.settings == finder.settings and p.batch_size == answer.refuted_at]
    return any(f is not None and (f.fragmented or f.cause in _TELLS_OF_PIECES) for f in failures)
