"""Composes the rooms: a workload, a prober, a strategy and a ledger become an answer. The only room that opens the store.

Importing this file costs little: torch, SQLAlchemy and pydantic come with the first search.
"""

import logging
import os
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from autotune.errors import AutotuneError, EnvironmentTrouble, NothingFits, TimeRanOut, UsageError, WorkloadError
from autotune.model import (
    Answer,
    Budget,
    Machine,
    Plan,
    Precision,
    ProbeResult,
    Question,
    SearchRecord,
    SearchResult,
    SearchState,
    Settings,
    Source,
    WorkloadInfo,
    digest,
)
from autotune.ports import SearchObserver, Strategy
from autotune.tuner import tune
from autotune.units import format_bytes, parse_bytes
from autotune.workload.source import INSIDE_VARIABLE, parse_source

if TYPE_CHECKING:
    from autotune.probe.launcher import Launcher
    from autotune.storage.store import Store

ALLOCATORS = {"default": "", "native": "", "expandable_segments": "expandable_segments:True"}
"""Short names of allocator configurations; anything else is taken as PyTorch's own syntax."""
STORAGE_VARIABLE = "AUTOTUNE_STORAGE"
BUDGET_DRIFT = 0.02
"""Earlier probes count only while the budget is within this share of theirs (others' memory comes and goes)."""

_log = logging.getLogger("autotune")


@dataclass(frozen=True, slots=True)
class MaxBatch:
    """What ``find_max_batch`` returns; ``int()`` gives the batch size."""

    batch_size: int
    """Largest certified batch size."""
    refuted_at: int | None
    """Smallest larger size that was executed and is not safe; None when a bound ended the search."""
    evidence: SearchResult
    """All probes, budget, machine and workload."""

    def __int__(self) -> int:
        return self.batch_size

    __index__ = __int__


def plan(
    ref: str,
    *,
    script_args: Sequence[str] = (),
    device: str = "auto",
    precision: str = "default",
    allocator: str = "",
    accumulate: int = 1,
    memory_limit: str | int | None = None,
    multiple_of: int = 1,
    start_batch: int | None = None,
    max_batch: int | None = None,
    timeout_s: float = 300.0,
    time_budget_s: float | None = None,
    seed: int = 0,
    recommend: bool = True,
) -> Plan:
    """A checked plan for ``FILE.py[:NAME]`` or ``pkg.mod[:NAME]``.

    Raises:
        UsageError: a value makes no sense, or the file is not there.
    """
    return _plan(
        parse_source(ref, script_args, Path.cwd()),
        device=device,
        precision=precision,
        allocator=allocator,
        accumulate=accumulate,
        memory_limit=memory_limit,
        multiple_of=multiple_of,
        start_batch=start_batch,
        max_batch=max_batch,
        timeout_s=timeout_s,
        time_budget_s=time_budget_s,
        seed=seed,
        recommend=recommend,
    )


def _plan(
    source: Source,
    *,
    device: str,
    precision: str,
    allocator: str,
    accumulate: int,
    memory_limit: str | int | None,
    multiple_of: int,
    start_batch: int | None,
    max_batch: int | None,
    timeout_s: float,
    time_budget_s: float | None,
    seed: int,
    recommend: bool,
) -> Plan:
    names = [kind.value for kind in Precision]
    if precision not in names:
        raise UsageError(f"precision {precision!r} is not known", hint=f"use one of {', '.join(names)}")
    counts = {"accumulate": accumulate, "multiple-of": multiple_of, "start-batch": start_batch, "max-batch": max_batch}
    for name, count in counts.items():
        if count is not None and count < 1:
            raise UsageError(f"{name} is {count}; it counts samples", hint=f"give --{name} 1 or more")
    if max_batch is not None and max_batch < multiple_of:
        raise UsageError(
            f"no multiple of {multiple_of} is within the largest batch allowed, {max_batch}",
            hint="raise --max-batch or lower --multiple-of",
        )
    for name, seconds in (("timeout", timeout_s), ("time-budget", time_budget_s)):
        if seconds is not None and not 0 < seconds < float("inf"):
            raise UsageError(f"{name} is {seconds:g} seconds", hint=f"give --{name} more than 0")
    try:
        limit = parse_bytes(memory_limit) if isinstance(memory_limit, str) else memory_limit
    except ValueError as error:
        raise UsageError(f"memory limit: {error}", hint="for example --memory-limit 512MiB") from error
    if limit is not None and limit < 1:
        raise UsageError(f"memory limit is {limit} bytes", hint="for example --memory-limit 512MiB")
    return Plan(
        source=source,
        settings=Settings(
            precision=Precision(precision), allocator=ALLOCATORS.get(allocator, allocator), accumulate=accumulate
        ),
        device=device,
        memory_limit_bytes=limit,
        multiple_of=multiple_of,
        start_batch=start_batch,
        max_batch=max_batch,
        timeout_s=timeout_s,
        time_budget_s=time_budget_s,
        seed=seed,
        recommend=recommend,
    )


def find_max_batch(
    workload: object,
    make_batch: Callable[[int], object] | None = None,
    *,
    loss: Callable[..., object] | None = None,
    make_optimizer: Callable[..., object] | None = None,
    evaluate: Callable[..., object] | None = None,
    make_dataset: Callable[[], object] | None = None,
    collate: Callable[..., object] | None = None,
    device: str = "auto",
    precision: str = "default",
    allocator: str = "",
    accumulate: int = 1,
    memory_limit: str | int | None = None,
    multiple_of: int = 1,
    start_batch: int | None = None,
    max_batch: int | None = None,
    timeout_s: float = 300.0,
    time_budget_s: float | None = None,
    seed: int = 0,
    storage: str | None = None,
    fresh: bool = False,
    observer: SearchObserver | None = None,
) -> MaxBatch:
    """The largest batch size that surely trains here, found in processes of their own.

    The calling process is left as found: no device context, no memory, same weights, random state and modes. Called
    again with nothing changed, it answers from the ledger after one confirming probe.

    Args:
        workload: a reference (``"model.py:Task"``), a function that makes the model, or a live ``nn.Module``.
        make_batch: ``make_batch(batch_size)`` -> a batch of CPU tensors; needed unless ``workload`` is a reference or
            ``make_dataset`` is given.
        loss: ``loss(model, batch)`` -> scalar tensor; default: the output's ``.loss``, cross-entropy or MSE.
        make_optimizer: ``make_optimizer(params)``; default AdamW.
        evaluate: ``evaluate(model, batch)``, run in eval mode between training steps.
        make_dataset: a data set to take worst-case batches from, instead of ``make_batch``.
        collate: samples -> batch, with ``make_dataset``.
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:1`` …
        precision: ``default``, ``fp32``, ``tf32``, ``bf16``, ``fp16``.
        allocator: PyTorch allocator configuration, for example ``expandable_segments:True``.
        accumulate: micro-batches per optimizer step.
        memory_limit: device-wide limit, bytes or ``"24GiB"``.
        multiple_of: only sizes that are multiples of this.
        start_batch: first size to try.
        max_batch: largest size to try.
        timeout_s: wall limit of one probe, seconds.
        time_budget_s: wall limit of the search, seconds.
        seed: of every probe.
        storage: ledger, a path or database URL; default: the platform's data directory or ``AUTOTUNE_STORAGE``.
        fresh: search anew, whatever the ledger knows.
        observer: is told of every probe; default: the ``autotune`` logger at level INFO.

    Raises:
        NothingFits: not even the smallest batch is safe.
        WorkloadError: the workload fails by itself; ``detail`` is its traceback.
        EnvironmentTrouble: device, ledger or processes are not usable.
        UsageError: an argument makes no sense.
        TimeRanOut: the time budget ended first; the next call goes on from there.
    """
    _refuse_inside()
    with TemporaryDirectory(prefix="autotune-live-") as folder:
        functions = {
            "make_batch": make_batch,
            "loss": loss,
            "make_optimizer": make_optimizer,
            "evaluate": evaluate,
            "make_dataset": make_dataset,
            "collate": collate,
        }
        source = _source(workload, functions, Path(folder) / "workload.pkl")
        asked = _plan(
            source,
            device=device,
            precision=precision,
            allocator=allocator,
            accumulate=accumulate,
            memory_limit=memory_limit,
            multiple_of=multiple_of,
            start_batch=start_batch,
            max_batch=max_batch,
            timeout_s=timeout_s,
            time_budget_s=time_budget_s,
            seed=seed,
            recommend=False,
        )
        result = search(asked, storage=storage, fresh=fresh, observer=observer or LogObserver())
    return MaxBatch(result.answer.max_batch, result.answer.refuted_at, result)


def _source(workload: object, functions: "dict[str, Callable[..., object] | None]", path: Path) -> Source:
    """The workload as probe processes will load it: a reference as it is, live objects pickled into ``path``."""
    if isinstance(workload, str | os.PathLike):
        given = [name for name, function in functions.items() if function is not None]
        if given:
            raise UsageError(
                f"{', '.join(given)} given beside the reference {os.fspath(workload)!r}",
                hint="define them in that file, or pass the model or its maker instead of a path",
            )
        return parse_source(os.fspath(workload), (), Path.cwd())
    from autotune.workload.live import pack

    return pack(workload, path=path, **functions)


def search(
    plan: Plan, *, storage: str | None = None, fresh: bool = False, observer: SearchObserver | None = None
) -> SearchResult:
    """Find the largest safe batch of a planned search, resuming or confirming what the ledger knows.

    Raises:
        NothingFits, WorkloadError, EnvironmentTrouble, StoreError, UsageError, TimeRanOut: see ``find_max_batch``.
    """
    _refuse_inside()
    from autotune.probe.launcher import Launcher
    from autotune.storage.store import Store

    observer = observer or LogObserver()
    started = time.monotonic()
    with ExitStack() as stack:
        store = stack.enter_context(Store.open(storage or default_storage()))
        launcher = stack.enter_context(
            Launcher(
                plan.source,
                plan.settings,
                job_environment=plan.settings.environment,
                timeout_s=plan.timeout_s,
                seed=plan.seed,
                say=observer.note,
            )
        )
        workload, machine = launcher.describe(plan.device, plan.multiple_of)
        budget = _budget(plan, machine)
        observer.found(workload, machine, budget)
        session = _Session(plan, store, launcher, observer, workload, machine, budget, started)
        return session.run(fresh=fresh)


def inspect(plan: Plan) -> tuple[WorkloadInfo, Machine]:
    """What is recognised in the workload, and the machine it would run on; no training step is run.

    Raises:
        WorkloadError: the file cannot be loaded or its model not be made.
        EnvironmentTrouble: no such device.
    """
    _refuse_inside()
    from autotune.probe.launcher import Launcher

    with Launcher(plan.source, plan.settings, job_environment={}, timeout_s=plan.timeout_s, seed=plan.seed) as launcher:
        return launcher.describe(plan.device, plan.multiple_of)


def searches(storage: str | None = None, limit: int = 50) -> tuple[SearchRecord, ...]:
    """The ledger's searches, newest first.

    Raises:
        StoreError: the ledger cannot be read.
    """
    from autotune.storage.store import Store

    with Store.open(storage or default_storage()) as store:
        return store.searches(limit)


def show(search_id: str, storage: str | None = None) -> tuple[SearchRecord, tuple[ProbeResult, ...]]:
    """One search and its probes; a unique beginning of the id is enough.

    Raises:
        StoreError: the ledger cannot be read, or has no such search.
    """
    from autotune.storage.store import Store

    with Store.open(storage or default_storage()) as store:
        record = store.get(search_id)
        return record, store.probes(record.id)


def default_storage() -> str:
    """The ledger's place: ``AUTOTUNE_STORAGE``, else a file in the platform's data directory."""
    from platformdirs import user_data_path

    return os.environ.get(STORAGE_VARIABLE) or str(user_data_path("autotune") / "ledger.sqlite3")


class LogObserver:
    """Tells the ``autotune`` logger, level INFO, what happens."""

    def found(self, workload: WorkloadInfo, machine: Machine, budget: Budget) -> None:
        """The search begins."""
        _log.info("%s on %s, budget %s", workload.ref, machine.device_name, format_bytes(budget.limit_bytes))

    def note(self, text: str) -> None:
        """Said once."""
        _log.info("%s", text)

    def asked(self, question: Question, number: int) -> None:
        """A probe is about to start."""
        _log.info("probe %d: batch %d, %s (%s)", number, question.batch_size, question.form, question.reason)

    def answered(self, result: ProbeResult, number: int) -> None:
        """A probe is finished."""
        _log.info("probe %d: batch %d: %s in %.1f s", number, result.batch_size, result.outcome, result.seconds)


class _Session:
    """One search being run."""

    def __init__(
        self,
        plan: Plan,
        store: "Store",
        launcher: "Launcher",
        observer: SearchObserver,
        workload: WorkloadInfo,
        machine: Machine,
        budget: Budget,
        started: float,
    ) -> None:
        self._plan = plan
        self._store = store
        self._launcher = launcher
        self._observer = observer
        self._workload = workload
        self._machine = machine
        self._budget = budget
        self._started = started
        self._key = search_key(plan, workload, machine)

    def run(self, *, fresh: bool) -> SearchResult:
        """Answer from the ledger after one confirming probe, go on with an unfinished search, or search."""
        earlier = None if fresh else self._earlier()
        if earlier is not None and earlier.answer is not None:
            confirmed = self._confirm(earlier, earlier.answer)
            if confirmed is not None:
                return confirmed
            earlier = None
        return self._search(earlier)

    def _earlier(self) -> SearchRecord | None:
        """The newest search of the same question whose measurements may be used."""
        usable = {SearchState.ANSWERED, SearchState.INTERRUPTED, SearchState.RUNNING}
        record = self._store.latest(self._key, usable)
        if record is not None and record.based_on and record.answer is None:
            record = self._store.get(record.based_on)  # an interrupted confirmation; its original still stands
        if record is None:
            return None
        if record.state is SearchState.RUNNING and _is_alive(record.owner):
            self._observer.note(f"search {record.id} of the same workload is running elsewhere; this one is separate")
            return None
        then, now = record.budget.limit_bytes, self._budget.limit_bytes
        if abs(then - now) > BUDGET_DRIFT * then:
            self._observer.note(
                f"the budget changed from {format_bytes(then)} to {format_bytes(now)} since search {record.id}: searching anew"
            )
            return None
        return record

    def _begin(self, based_on: str | None = None) -> SearchRecord:
        record = SearchRecord(
            id=uuid.uuid4().hex[:12],
            key=self._key,
            state=SearchState.RUNNING,
            created=datetime.now(UTC),
            owner=_owner(os.getpid()),
            version=version(),
            plan=self._plan,
            workload=self._workload,
            machine=self._machine,
            budget=self._budget,
            based_on=based_on,
        )
        self._store.begin(record)
        return record

    def _confirm(self, earlier: SearchRecord, answer: Answer) -> SearchResult | None:
        """One long probe at the known answer; None if it no longer holds."""
        from autotune.search.confirm import ConfirmKnown

        root = earlier.based_on or earlier.id
        self._observer.note(f"search {root} answered this before; confirming it with one probe (--fresh searches anew)")
        record = self._begin(based_on=root)
        known, probes = self._loop(record, ConfirmKnown(answer), ())
        if known is None:
            self._finish(record, SearchState.NO_ANSWER, None, f"the answer of search {root} no longer holds")
            self._observer.note(f"batch {answer.max_batch} is no longer safe: searching anew")
            return None
        return self._result(record, known, (*self._store.probes(root), *probes), new=len(probes), from_ledger=True)

    def _search(self, unfinished: SearchRecord | None) -> SearchResult:
        from autotune.search.batch import BatchFinder

        history: tuple[ProbeResult, ...] = ()
        if unfinished is None:
            record = self._begin()
        else:
            record, history = unfinished, self._store.probes(unfinished.id)
            self._store.reopen(record.id, _owner(os.getpid()))
            self._observer.note(f"going on with search {record.id}: {len(history)} finished probes are used again")
        finder = BatchFinder(
            multiple_of=self._plan.multiple_of,
            start_batch=self._plan.start_batch,
            max_batch=self._plan.max_batch,
            data_set_size=self._workload.data_set_size,
            recommend=self._plan.recommend,
        )
        answer, probes = self._loop(record, finder, history)
        if answer is None:
            error = no_answer(probes, self._workload, self._plan.settings.precision)
            self._finish(record, SearchState.NO_ANSWER, None, error.message)
            raise error
        return self._result(record, answer, probes, new=len(probes) - len(history), from_ledger=False)

    def _loop(
        self, record: SearchRecord, strategy: Strategy, history: tuple[ProbeResult, ...]
    ) -> tuple[Answer | None, tuple[ProbeResult, ...]]:
        """Run the tuner; whatever stops it, the search stays resumable until it is finished."""
        try:
            stop, probes = tune(
                strategy,
                self._launcher,
                _StoreRecorder(self._store, record.id),
                self._observer,
                self._budget,
                history,
                self._out_of_time,
            )
        except BaseException as error:
            self._finish(record, SearchState.INTERRUPTED, None, f"stopped by {type(error).__name__}")
            raise
        if stop is None:
            self._finish(record, SearchState.INTERRUPTED, None, "the time budget ended")
            raise TimeRanOut(
                f"the time budget of {self._plan.time_budget_s:g} s ended after {len(probes)} probes, before an answer",
                hint=f"run the same command again to go on with search {record.id}, with a larger --time-budget",
            )
        if stop.answer is not None:
            self._finish(record, SearchState.ANSWERED, stop.answer, stop.reason)
        return stop.answer, probes

    def _finish(self, record: SearchRecord, state: SearchState, answer: Answer | None, message: str) -> None:
        self._store.finish(record.id, state=state, answer=answer, message=message, finished=datetime.now(UTC))

    def _out_of_time(self) -> bool:
        budget = self._plan.time_budget_s
        return budget is not None and time.monotonic() - self._started >= budget

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
            seconds=time.monotonic() - self._started,
            created=datetime.now(UTC),
            from_ledger=from_ledger,
        )
        return replace(result, warnings=advice(result))


class _StoreRecorder:
    """Commits each probe to one search."""

    def __init__(self, store: "Store", search_id: str) -> None:
        self._store = store
        self._search_id = search_id

    def add(self, result: ProbeResult) -> None:
        self._store.add_probe(self._search_id, result)


def no_answer(probes: Sequence[ProbeResult], workload: WorkloadInfo, precision: Precision) -> AutotuneError:
    """The error for a search that ended without an answer."""
    from autotune.report.memory_split import memory_split
    from autotune.search.verdict import Ending, why_nothing

    ending, decisive = why_nothing(probes)
    failure = decisive.failure
    what = failure.message if failure else decisive.outcome.value
    where = f" in phase {failure.phase}" if failure and failure.phase else ""
    hint = failure.hint if failure else ""
    if ending is Ending.NOTHING_FITS:
        split = memory_split(decisive, workload, precision=precision)
        return NothingFits(
            f"nothing fits: batch {decisive.batch_size} is {decisive.outcome.value.replace('_', ' ')}{where}: {what}",
            detail=split.text,
            hint=split.next_action,
        )
    detail = (failure.traceback if failure else "") or decisive.stderr_tail
    if ending is Ending.ENVIRONMENT:
        return EnvironmentTrouble(
            f"every batch size fails{where}, the smallest as well: {what}", detail=detail, hint=hint
        )
    return WorkloadError(f"the workload fails at batch {decisive.batch_size}{where}: {what}", detail=detail, hint=hint)


def search_key(plan: Plan, workload: WorkloadInfo, machine: Machine) -> str:
    """Equal keys ask the same question of the same workload on the same machine."""
    settings = plan.settings
    return digest(
        {
            "workload": workload.fingerprint,
            "machine": machine.fingerprint,
            "settings": [settings.precision, settings.allocator, settings.accumulate],
            "memory_limit": plan.memory_limit_bytes,
            "bounds": [plan.multiple_of, plan.start_batch, plan.max_batch],
            "timeout": plan.timeout_s,
            "seed": plan.seed,
            "recommend": plan.recommend,
        }
    )


def version() -> str:
    """autotune's own version."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        return installed("autotune-torch")
    except PackageNotFoundError:  # run from a bare checkout
        return "0+checkout"


def _refuse_inside() -> None:
    if os.environ.get(INSIDE_VARIABLE):
        raise WorkloadError(
            "a search was started while autotune was loading or probing this very file",
            hint='put the call of find_max_batch() under `if __name__ == "__main__":`',
        )


def _budget(plan: Plan, machine: Machine) -> Budget:
    from autotune.probe import nvml
    from autotune.probe.budget import make_budget
    from autotune.probe.host import host_limit

    return make_budget(
        machine,
        memory_limit_bytes=plan.memory_limit_bytes,
        others_bytes=nvml.used_bytes(machine.device_uuid),
        host=host_limit(),
    )


def _owner(pid: int) -> str:
    import platform

    import psutil

    return f"{platform.node()}:{pid}:{psutil.Process(pid).create_time():.2f}"


def _is_alive(owner: str) -> bool:
    """Whether the process that runs a search still does; on another host it counts as alive."""
    import platform

    import psutil

    host, pid, _ = owner.rsplit(":", 2)
    if host != platform.node():
        return True
    try:
        return _owner(int(pid)) == owner
    except psutil.Error:
        return False
