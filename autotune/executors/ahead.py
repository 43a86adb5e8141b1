"""A prober over several workers, for the same loop as over one: it runs probes ahead of being asked for them.

The loop asks one question at a time and records each answer before the next, whatever the number of workers. While the
probe it waits for runs, idle workers run those that the strategy would ask for next if that probe, and others under way,
said what is expected of them (``search.imagine``). When the loop comes to one of them its answer is there. So what the search
sees, records and decides is what it would with one worker; only the wall time differs. What ran ahead in vain is dropped.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Protocol

from autotune.errors import EnvironmentTrouble
from autotune.executors.bench import Bench, Finished, Lost
from autotune.model import Budget, Cause, ProbeResult, Question, Reason, Stop
from autotune.search.imagine import Imagine

ATTEMPTS = 4
"""Times that one probe is begun before the search gives up: as many losses are no accident."""
_LOOK_UP_S = 5.0
"""How long is waited before the search is made sure of again."""
_DEAR = 4
"""A probe that takes more than this many times as long as what has to be waited for anyway begins only when it is asked
for: run in vain it would hold up its worker for far longer than it could have gained. It keeps compiling back."""
_DEPTH = 4
"""Answers imagined one upon another, for each worker: further ahead little is right."""


class Asking(Protocol):
    """A strategy."""

    def ask(self, history: Sequence[ProbeResult]) -> Question | Stop:
        """Return the next probe or stop."""
        ...


@dataclass(slots=True)
class _Run:
    """A probe that was handed out, and perhaps has ended."""

    question: Question
    reserve_bytes: int
    ticket: int
    began: float
    attempt: int = 1
    end: ProbeResult | Exception | None = None
    """None while it runs. Lost probes are begun again or forgotten, so that a loss is no end."""


class Ahead:
    """A ``Prober``."""

    def __init__(
        self,
        strategy: Asking | None,
        bench: Bench,
        history: Sequence[ProbeResult],
        imagine: Imagine,
        *,
        lost: Callable[[ProbeResult], None] = lambda result: None,
        keep: Callable[[], None] = lambda: None,
        until: Callable[[], bool] = lambda: False,
        as_run: Callable[[Question], Question] = lambda question: question,
    ) -> None:
        """
        Args:
            strategy: the one that the loop asks; None = nothing runs ahead.
            bench: where probes run.
            history: what the loop begins with.
            imagine: what a probe will probably say; None = nothing is known.
            lost: is given each lost probe, to be recorded; it is no evidence.
            keep: called every few seconds while a probe is waited for.
            until: whether time is out; nothing runs ahead any more then.
            as_run: the question as it is put to a worker.
        """
        self._strategy = strategy
        self._bench = bench
        self._known = list(history)
        self._imagine = imagine
        self._lost = lost
        self._keep = keep
        self._until = until
        self._as_run = as_run
        self._runs: dict[Question, _Run] = {}
        self._not_ahead: set[Question] = set()
        """What was lost when it ran ahead: perhaps it is what kills workers, and it runs again only where it is needed."""
        self.ran_ahead = 0
        """Answers that were under way or there when they were asked for."""

    @property
    def not_asked_for(self) -> tuple[ProbeResult, ...]:
        """What ran ahead to its end, and has not been asked for."""
        return tuple(run.end for run in self._runs.values() if isinstance(run.end, ProbeResult))

    def probe(self, question: Question, budget: Budget, reserve_bytes: int) -> ProbeResult:
        """Run one probe, or take the answer of one that ran ahead (see ``ports.Prober``).

        Raises:
            EnvironmentTrouble: no worker is left, or this probe was lost again and again.
        """
        key = _key(question)
        run = self._runs.get(key)
        if run is not None and isinstance(run.end, ProbeResult) and not _stands(run, reserve_bytes, budget):
            run = None
        if run is None:
            run = self._runs[key] = self._begin(question, budget, reserve_bytes)
        else:
            self.ran_ahead += 1
        while True:
            end = self._end_of(key, question, budget, reserve_bytes)
            if isinstance(end, Exception):
                raise end
            if end is not None:
                break
        result = replace(end, reason=question.reason)
        self._known.append(result)
        return result

    def keep_all(self, keep: Callable[[ProbeResult], None]) -> None:
        """Give what ran ahead to its end to be recorded, for a search that goes on later."""
        for result in self.not_asked_for:
            keep(result)
        self._runs = {key: run for key, run in self._runs.items() if not isinstance(run.end, ProbeResult)}

    def close(self) -> None:
        """Nobody asks for anything more."""
        for run in self._runs.values():
            if run.end is None:
                self._bench.drop(run.ticket)
        self._runs.clear()

    def _end_of(
        self, key: Question, question: Question, budget: Budget, reserve_bytes: int
    ) -> ProbeResult | Exception | None:
        """The end of the probe that is asked for, taken away; None if it still runs, or has to run again."""
        run = self._runs[key]
        if run.end is None:
            self._look_ahead(run, budget, reserve_bytes)
            for finished in self._bench.wait(_LOOK_UP_S):
                self._finish(finished, key, budget)
            self._keep()
        if run.end is None:
            return None
        del self._runs[key]
        if isinstance(run.end, ProbeResult) and not _stands(run, reserve_bytes, budget):
            self._runs[key] = self._begin(question, budget, reserve_bytes)
            return None
        return run.end

    def _finish(self, finished: Finished, wanted: Question, budget: Budget) -> None:
        run = next((run for run in self._runs.values() if run.ticket == finished.ticket), None)
        if run is None:
            return
        if not isinstance(finished.end, Lost):
            run.end = finished.end
            return
        lasted_s = time.monotonic() - run.began
        began = datetime.now(UTC) - timedelta(seconds=lasted_s)
        self._lost(finished.end.result(run.question, budget, began, lasted_s))
        key = _key(run.question)
        if key != wanted:
            del self._runs[key]  # if it is wanted, it will be asked for
            self._not_ahead.add(key)
        elif run.attempt == ATTEMPTS:
            run.end = EnvironmentTrouble(
                f"batch {run.question.batch_size} cannot be probed: its worker was lost {ATTEMPTS} times, last"
                f" {finished.end.worker}: {finished.end.why}",
                hint="look after the workers' hosts and their limits, then run the same command again: finished probes"
                " are kept",
            )
        else:
            run.attempt += 1
            run.began = time.monotonic()
            run.ticket = self._bench.submit(self._as_run(run.question), budget, run.reserve_bytes)

    def _look_ahead(self, run: _Run, budget: Budget, reserve_bytes: int) -> None:
        """Give idle workers what will probably be asked for after this probe."""
        if self._strategy is None or self._bench.idle < 1 or self._until():
            return
        ends = {key: run.end for key, run in self._runs.items() if isinstance(run.end, ProbeResult)}
        imagined = [*self._known]
        holds: list[Callable[[Question], bool]] = []
        question, wait_s = run.question, 0.0
        for _ in range(_DEPTH * self._bench.width):
            end = ends.pop(_key(question), None)
            if end is not None:
                imagined.append(replace(end, reason=question.reason))
            else:
                # What ran ahead to its end is known as well, though the search will see it only later.
                expected = self._imagine(question, (*imagined, *ends.values()))
                if expected is None:
                    return
                imagined += expected.results
                holds.append(expected.holds)
                wait_s = max(wait_s, self._left_s(question, expected.results[0].seconds))
            asked = self._strategy.ask(tuple(imagined))
            if isinstance(asked, Stop) or asked.reason is Reason.RETRY:
                return
            question = asked
            if _key(question) in self._runs or _key(question) in self._not_ahead:
                continue
            if not all(hold(question) for hold in holds):
                continue
            expected = self._imagine(question, (*imagined, *ends.values()))
            if expected is not None and expected.results[0].seconds > _DEAR * wait_s:
                return  # what comes after it is as unsure
            self._runs[_key(question)] = self._begin(question, budget, reserve_bytes)
            if self._bench.idle < 1:
                return

    def _left_s(self, question: Question, whole_s: float) -> float:
        """Seconds until a probe that takes so long should end."""
        run = self._runs.get(_key(question))
        return whole_s if run is None else max(0.0, whole_s - (time.monotonic() - run.began))

    def _begin(self, question: Question, budget: Budget, reserve_bytes: int) -> _Run:
        ticket = self._bench.submit(self._as_run(question), budget, reserve_bytes)
        return _Run(question, reserve_bytes, ticket, time.monotonic())


def _key(question: Question) -> Question:
    """What is probed, whatever for: but a refusal of a candidate is an answer, and one of the user's own settings is not."""
    return replace(question, reason=Reason.CHANGE if question.reason.of_candidate else Reason.START)


def _stands(run: _Run, reserve_bytes: int, budget: Budget) -> bool:
    """Whether a probe that ran under an older reserve, and so under another cap, would have said the same under this one."""
    end = run.end
    assert isinstance(end, ProbeResult)
    if run.reserve_bytes == reserve_bytes:
        return True
    if end.failure is not None:
        tighter = reserve_bytes >= run.reserve_bytes
        return tighter and end.failure.cause is not Cause.OVER_BUDGET
    held = end.measurement.peak_reserved_bytes
    return held is None or held <= budget.limit_bytes - reserve_bytes
