"""One search being run: what the ledger already knows, the loop, and how it ends. Owned by ``api``."""

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from autotune.composing import Composer
from autotune.errors import DamagedRow, StoreError, TimeRanOut, UsageError
from autotune.executors.bench import Bench
from autotune.held import Held
from autotune.identity import search_key, version
from autotune.model import (
    Answer,
    Budget,
    Form,
    Machine,
    Outcome,
    Plan,
    ProbeResult,
    Question,
    SearchRecord,
    SearchResult,
    SearchState,
    WorkloadInfo,
    digest,
)
from autotune.ports import Concluding, Prober, SearchObserver, Strategy
from autotune.reuse import still_valid
from autotune.tuner import non_pytorch_bytes, tune
from autotune.unanswered import no_answer
from autotune.units import format_bytes

if TYPE_CHECKING:
    from autotune.executors.ahead import Ahead
    from autotune.storage.store import Store

BUDGET_GROWTH = 0.05
"""An answer stands until the budget has grown by this share: then a larger batch may fit. A budget that has shrunk is
the confirming probe's business."""


class Session:
    """One search being run."""

    def __init__(
        self,
        plan: Plan,
        store: "Store",
        launcher: Prober,
        observer: SearchObserver,
        workload: WorkloadInfo,
        machine: Machine,
        budget: Budget,
        started: float,
        guess: int | None = None,
    ) -> None:
        """
        Args:
            plan: what is asked.
            store: the ledger.
            launcher: runs the probes.
            observer: is told of them.
            workload, machine, budget: as they were looked at.
            started: instant on ``time.monotonic`` from which the time budget counts.
            guess: what the answer may be: the search begins there. It is no part of the question, so that the ledger's
                answer counts for whoever asks without it.
        """
        self._plan = plan
        self._store = store
        self._bench = launcher if isinstance(launcher, Bench) else None
        self._launcher = launcher if plan.length_bucket is None else _InBucket(launcher, plan.length_bucket)
        self._observer = observer
        self._workload = workload
        self._machine = machine
        self._budget = budget
        self._started = started
        self._key = search_key(plan, workload, machine)
        self._composer = Composer(
            plan=plan,
            workload=workload,
            machine=machine,
            budget=budget,
            elapsed_s=lambda: self._elapsed_s,
            guess=guess,
        )

    def run(self, *, fresh: bool) -> SearchResult:
        """Answer from the ledger after one confirming probe, go on with an unfinished search, or search.

        Raises:
            UsageError: a size for evaluation was given, and the workload has none.
        """
        if self._plan.eval_batch is not None and not self._workload.evaluates:
            raise UsageError(
                f"eval_batch is {self._plan.eval_batch}, and {self._workload.ref} has no evaluation",
                hint="define evaluate(model, batch), or leave out --eval-batch",
            )
        self._store.close_orphans()
        if fresh:
            return self._search(None)
        try:
            earlier = self._earlier()
            # Of a confirmation, those of the search it confirms.
            measured = self._store.probes(earlier.based_on or earlier.id) if earlier is not None else ()
        except (DamagedRow, UsageError) as trouble:  # the second: what it is based on is not there any more
            self._observer.note(f"{trouble.message}; it is not used: searching anew")
            return self._search(None)
        if earlier is None:
            return self._search(None, before=self._latest_of_this())
        if earlier.answer is not None and earlier.answer.complete:
            confirmed = self._confirm(earlier, earlier.answer, measured)
            return confirmed if confirmed is not None else self._search(None)
        return self._search(earlier, measured)

    def _earlier(self) -> SearchRecord | None:
        """The newest search of the same question whose measurements may be used."""
        usable = {SearchState.ANSWERED, SearchState.INTERRUPTED, SearchState.RUNNING}
        record = self._store.latest(self._key, usable)
        if record is not None and record.based_on and record.answer is None:
            record = self._store.get(record.based_on)  # an interrupted confirmation; its original still stands
        if record is None:
            return None
        if record.state is SearchState.RUNNING:
            self._observer.note(f"search {record.id} of the same workload is running elsewhere; this one is separate")
            return self._store.unfinished(self._key)
        if record.answer is None or not record.answer.complete:
            return self._store.unfinished(self._key)
        # A confirmation is worth what the search it confirms is worth; else many small changes would add up.
        measured = self._store.get(record.based_on) if record.based_on else record
        then, now = measured.budget.limit_bytes, self._budget.limit_bytes
        if now > (1 + BUDGET_GROWTH) * then:
            self._observer.note(
                f"the budget grew from {format_bytes(then)} to {format_bytes(now)} since search {measured.id}:"
                " searching anew"
            )
            return None
        return record

    def _begin(self, based_on: str | None = None) -> Held:
        newest = self._store.latest(self._key, frozenset(SearchState))
        created = datetime.now(UTC)
        if newest is not None and newest.created >= created:  # the clock was set back, and the newest is what goes on
            created = newest.created + timedelta(microseconds=1)
        record = SearchRecord(
            id="",
            key=self._key,
            state=SearchState.RUNNING,
            created=created,
            owner="",
            version=version(),
            plan=self._plan,
            workload=self._workload,
            machine=self._machine,
            budget=self._budget,
            based_on=based_on,
        )
        return Held.begin(self._store, record)

    def _confirm(self, earlier: SearchRecord, answer: Answer, measured: tuple[ProbeResult, ...]) -> SearchResult | None:
        """One long probe at the known answer; None if it no longer holds."""
        from autotune.search.confirm import ConfirmKnown

        root = earlier.based_on or earlier.id
        self._observer.note(f"search {root} answered this before; confirming it with one probe (--fresh searches anew)")
        held = self._begin(based_on=root)
        told_by = "a prediction in the ledger" if self._plan.predicted else "the ledger"
        strategy = ConfirmKnown(answer, answer.settings or self._plan.settings, told_by)
        known, probes = self._loop(held, strategy, (), non_pytorch_bytes(measured))
        if known is None and probes[-1].outcome is Outcome.UNRELIABLE:  # of the answer it says nothing, which stands
            error = no_answer(probes, self._workload, strategy.settings.precision)
            held.finish(SearchState.INTERRUPTED, None, error.message)
            raise error
        if known is None:
            held.finish(SearchState.NO_ANSWER, None, f"the answer of search {root} no longer holds")
            self._observer.note(f"batch {answer.max_batch} is no longer safe: searching anew")
            return None
        return self._result(held.record, known, (*measured, *probes), new=len(probes), from_ledger=True)

    def check(self, claimed: Answer, based_on: str | None) -> tuple[str, bool, tuple[ProbeResult, ...]]:
        """One long probe at an answer that is claimed by a file (more only if that proves nothing), whatever the ledger
        knows. It is kept as a search of its own, which no later search takes for an answer to its question.

        Args:
            claimed: the size is its ``max_batch``.
            based_on: the search that made the file, if it is in the ledger.

        Returns:
            Id under which the ledger keeps it, whether the size is safe, and the probes.
        """
        from autotune.search.confirm import ConfirmKnown

        self._key = digest({"check": self._key, "batch": claimed.max_batch})
        held = self._begin(based_on=based_on)
        strategy = ConfirmKnown(claimed, claimed.settings or self._plan.settings, told_by="a recommendation")
        reserve_bytes = 0
        try:
            reserve_bytes = non_pytorch_bytes(self._store.probes(based_on)) if based_on else 0
        except StoreError as trouble:  # damaged, or not here: it would only have said what to leave free
            self._observer.note(f"{trouble.message}; it is not used")
        answer, probes = self._loop(held, strategy, (), reserve_bytes)
        if answer is None:
            held.finish(SearchState.NO_ANSWER, None, f"batch {claimed.max_batch} of a recommendation is not safe here")
        return held.record.id, answer is not None, probes

    def _search(
        self,
        unfinished: SearchRecord | None,
        measured: tuple[ProbeResult, ...] = (),
        *,
        before: SearchRecord | None = None,
    ) -> SearchResult:
        """Search, going on with an unfinished one and what it measured. ``before``: the latest of the same workload."""
        history: tuple[ProbeResult, ...] = ()
        held = Held.go_on(self._store, unfinished) if unfinished is not None else None
        if held is None:
            held = self._begin()
            self._say_why_anew(before, held.record)
        else:
            history = still_valid(measured, self._budget.limit_bytes)
            self._observer.note(f"going on with search {held.record.id}: {len(history)} finished probes are used again")
        answer, probes = self._loop(held, self._composer.strategy(history), history)
        if answer is None:
            error = no_answer(probes, self._workload, self._plan.settings.precision)
            disturbed = probes[-1].outcome is Outcome.UNRELIABLE  # what was measured before stays good
            state = SearchState.INTERRUPTED if disturbed else SearchState.NO_ANSWER
            held.finish(state, None, error.message)
            raise error
        return self._result(held.record, answer, probes, new=len(probes) - len(history), from_ledger=False)

    def _latest_of_this(self) -> SearchRecord | None:
        """The newest search of the same workload that asked for an answer; a check of a file asks for none, and predictions
        ask about several things in a row."""
        if self._plan.predicted:
            return None
        directory = self._plan.source.directory

        def asked(record: SearchRecord) -> bool:
            ours = record.plan.source.directory == directory and not record.plan.predicted
            return ours and record.key == search_key(record.plan, record.workload, record.machine)

        return self._store.latest_of(self._workload.ref, asked)

    def _say_why_anew(self, before: SearchRecord | None, record: SearchRecord) -> None:
        if before is None:
            return
        if before.key != record.key:
            from autotune.report.differences import what_changed

            changes = "; ".join(what_changed(before, record))
            self._observer.note(f"changed since search {before.id} of the same workload: {changes}: searching anew")
        elif before.state is SearchState.NO_ANSWER:
            self._observer.note(f"search {before.id} ended without an answer ({before.message}): searching anew")

    def _loop(
        self, held: Held, strategy: Strategy, history: tuple[ProbeResult, ...], reserve_bytes: int = 0
    ) -> tuple[Answer | None, tuple[ProbeResult, ...]]:
        """Run the tuner; whatever stops it, the search stays resumable until it is finished."""
        conclude = strategy.conclude if isinstance(strategy, Concluding) else _nothing_stands
        ahead = self._ahead(held, strategy, history)
        try:
            stop, probes = tune(
                strategy,
                held.leased(self._prober(ahead or self._launcher, history)),
                held,
                self._observer,
                self._budget,
                history,
                self._out_of_time,
                conclude,
                reserve_bytes,
            )
            if ahead is not None and (stop is None or (stop.answer is not None and not stop.answer.complete)):
                ahead.keep_all(held.add)  # who goes on with the search has them
            if ahead is not None and ahead.ran_ahead:
                self._observer.note(f"{ahead.ran_ahead} of {len(probes)} probes ran ahead, beside others")
        except BaseException as error:
            if ahead is not None and not isinstance(error, StoreError):
                with suppress(StoreError):  # the error itself matters more
                    ahead.keep_all(held.add)
            held.interrupt(error)
            raise
        finally:
            if ahead is not None:
                ahead.close()
        if stop is None:
            held.finish(SearchState.INTERRUPTED, None, "the time budget ended")
            certified = max((p.batch_size for p in probes if p.fits and p.form is Form.LONG), default=None)
            counted = f"{len(probes)} probe{'' if len(probes) == 1 else 's'}"
            so_far = "" if certified is None else f"; batch {certified} is certified, and may not be the largest"
            raise TimeRanOut(
                f"the time budget of {self._plan.time_budget_s:g} s ended after {counted}, before an answer{so_far}",
                hint=f"run the same command again to go on with search {held.record.id}, with a larger --time-budget",
            )
        if stop.answer is not None:
            state = SearchState.ANSWERED if stop.answer.complete else SearchState.INTERRUPTED
            held.finish(state, stop.answer, stop.reason)
        return stop.answer, probes

    def _ahead(self, held: Held, strategy: Strategy, history: Sequence[ProbeResult]) -> "Ahead | None":
        """What runs the probes where there are several workers for them, or one that may be lost."""
        if self._bench is None:
            return None
        from autotune.executors.ahead import Ahead
        from autotune.search.imagine import imagination

        bucket = self._plan.length_bucket
        return Ahead(
            strategy,
            self._bench,
            history,
            imagination(strategy),
            lost=held.add,
            keep=held.keep,
            until=self._out_of_time,
            as_run=lambda question: question if bucket is None else replace(question, length_bucket=bucket),
        )

    def _prober(self, prober: Prober, history: Sequence[ProbeResult]) -> Prober:
        """The same prober; where the driver hides that memory ran out, with an eye on that."""
        from autotune.probe.spill import SpillWatch, may_spill

        return SpillWatch(prober, self._machine, history) if may_spill(self._machine) else prober

    def _out_of_time(self) -> bool:
        budget = self._plan.time_budget_s
        return budget is not None and self._elapsed_s >= budget

    @property
    def _elapsed_s(self) -> float:
        """Wall time of this command."""
        return time.monotonic() - self._started

    def _result(
        self, record: SearchRecord, answer: Answer, probes: tuple[ProbeResult, ...], *, new: int, from_ledger: bool
    ) -> SearchResult:
        from autotune.report.advice import advice

        result = SearchResult(
            search_id=record.id,
            plan=self._plan,
            workload=self._workload,
            machine=self._machine,
            budget=self._budget,
            answer=answer,
            probes=probes,
            new_probes=new,
            seconds=self._elapsed_s,
            created=datetime.now(UTC),
            from_ledger=from_ledger,
        )
        return replace(result, warnings=advice(result))


def _nothing_stands(history: Sequence[ProbeResult]) -> None:
    """What a confirmation concludes before it is through."""


class _InBucket:
    """Probes that train on the samples of one length bucket only, whatever they are asked for."""

    def __init__(self, prober: Prober, length_bucket: int) -> None:
        self._prober = prober
        self._length_bucket = length_bucket

    def probe(self, question: Question, budget: Budget, reserve_bytes: int) -> ProbeResult:
        return self._prober.probe(replace(question, length_bucket=self._length_bucket), budget, reserve_bytes)
