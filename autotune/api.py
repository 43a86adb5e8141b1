"""Composes the rooms: a workload, a prober, a strategy and a ledger become an answer. The only room that opens the store.

Importing this file costs little: torch, SQLAlchemy and pydantic come with the first search.
"""

import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from autotune.errors import AutotuneError, UsageError, WorkloadError
from autotune.ledger import default_storage
from autotune.masked import without_passwords
from autotune.model import (
    Bucketed,
    Budget,
    Diagnosis,
    Evaluation,
    Explanation,
    Fact,
    Health,
    Machine,
    Plan,
    ProbeResult,
    Question,
    SearchRecord,
    SearchResult,
    Source,
    WorkloadInfo,
)
from autotune.planning import PlanOptions, length_buckets, make_plan, with_own_settings
from autotune.ports import Laboratory, SearchObserver
from autotune.session import Session
from autotune.units import format_bytes, format_seconds
from autotune.workload.command import parse_command
from autotune.workload.source import INSIDE_VARIABLE, parse_source

_WORTH_TELLING_S = 1.0

if TYPE_CHECKING:
    from autotune.probe.turns import Turns
    from autotune.recommended.checked import Checked
    from autotune.recommended.given import CheckOptions
    from autotune.report.page.view import View
    from autotune.storage.store import Store

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

    buckets: "Mapping[int, MaxBatch | None]" = field(default_factory=dict, hash=False)
    """Where ``buckets`` were given, the answer of each, shortest first; None where no sample is so short. The rest here is
    then of the longest that has samples, which is safe for all of them."""

    @property
    def evaluation(self) -> Evaluation | None:
        """The largest evaluation that goes with it, told apart; None = not probed: the workload has no ``evaluate``."""
        return self.evidence.answer.evaluation

    def __int__(self) -> int:
        return self.batch_size

    __index__ = __int__


def plan(
    ref: str,
    *,
    script_args: Sequence[str] = (),
    command: Sequence[str] = (),
    templates: Sequence[str] = (),
    **options: Unpack[PlanOptions],
) -> Plan:
    """A checked plan for ``FILE.py[:NAME]`` or ``pkg.mod[:NAME]``, or for a training command.

    Args:
        ref: of the file or module; empty where a command is given.
        script_args: what the file shall see in ``sys.argv[1:]``.
        command: words of a training command with ``{batch}`` in it.
        templates: how the command is told settings, as ``NAME=TEMPLATE``.
        options: as ``find_max_batch`` explains them.

    Raises:
        UsageError: a value makes no sense, or the file or program is not there.
    """
    if command:
        return make_plan(parse_command(command, templates, Path.cwd()), **options)
    if templates:
        raise UsageError(
            f"--set {templates[0]!r} is for training commands, and {ref} is none",
            hint="give the command behind --: autotune search -- python train.py --batch-size {batch}",
        )
    return make_plan(parse_source(ref, script_args, Path.cwd()), **options)


def find_max_batch(
    workload: object,
    make_batch: Callable[[int], object] | None = None,
    *,
    loss: Callable[..., object] | None = None,
    make_optimizer: Callable[..., object] | None = None,
    evaluate: Callable[..., object] | None = None,
    make_dataset: Callable[[], object] | None = None,
    collate: Callable[..., object] | None = None,
    shorten: Callable[..., object] | None = None,
    make_loader: Callable[[int], object] | None = None,
    batch_dim: int | None = None,
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
    device_wait_s: float = 600.0,
    seed: int = 0,
    eval_batch: int | None = None,
    buckets: Sequence[int] | None = None,
    storage: str | os.PathLike[str] | None = None,
    fresh: bool = False,
    observer: SearchObserver | None = None,
) -> MaxBatch:
    """The largest batch size that surely trains here, found in processes of their own.

    The calling process is left as found: no device context, no memory, same weights, random state and modes. Called
    again with nothing changed, it answers from the ledger after one confirming probe.

    Args:
        workload: a reference (``"model.py:Task"``), a function that makes the model, a live ``nn.Module``, a live Hugging
            Face ``Trainer`` or ``LightningModule``, which have all the rest, or the words of a training command with
            ``{batch}`` among them (``["python", "train.py", "--batch-size", "{batch}"]``).
        make_batch: ``make_batch(batch_size)`` -> a batch of CPU tensors; needed unless ``workload`` is a reference, a
            command, a ``Trainer`` or a ``LightningModule`` with loaders, or ``make_loader`` or ``make_dataset`` is given.
        loss: ``loss(model, batch)`` -> scalar tensor; default: the output's ``.loss``, cross-entropy or MSE.
        make_optimizer: ``make_optimizer(params)``; default AdamW.
        evaluate: ``evaluate(model, batch)``, run in eval mode between training steps. Its limit is found apart, and never
            lowers that of training.
        make_dataset: a data set, or a data loader, to take worst-case batches from, instead of ``make_batch``.
        collate: samples -> batch, with ``make_dataset``.
        shorten: ``shorten(batch, share)`` -> the same batch with samples of this share (0 < share < 1) of their length;
            give it where batches of the training differ in length. With ``make_dataset`` it is not needed.
        make_loader: ``make_loader(batch_size)`` -> a data loader or any iterable of batches, instead of ``make_batch``;
            ``batch_size`` is what its sampler takes, for example a token budget, and so is the answer then.
        batch_dim: which dimension of the batch's tensors counts its samples, where ``make_batch`` leaves that in doubt.
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:1`` …
        precision: ``default``, ``fp32``, ``tf32``, ``bf16``, ``fp16``.
        allocator: PyTorch allocator configuration, for example ``expandable_segments:True``; ``auto`` tries expandable
            segments as well where more is expected of them, and keeps them if more fits.
        accumulate: micro-batches per optimizer step.
        memory_limit: device-wide limit, bytes or ``"24GiB"``.
        multiple_of: only sizes that are multiples of this.
        start_batch: first size to try, where the limit is not foretold from a recording.
        max_batch: largest size to try.
        timeout_s: wall limit of one probe, seconds.
        time_budget_s: wall limit of the search, seconds.
        device_wait_s: how long probes of other searches on the device are waited for, each time, seconds; 0 = not at all.
        seed: of every probe.
        eval_batch: evaluate in batches of this size; default: of the training batch's, as far as they fit.
        buckets: length buckets, for samplers that group samples by length: the largest length in each, ascending. Each
            gets an answer of its own, for samples at most so long (see ``MaxBatch.buckets``). Lengths must vary: in
            ``make_dataset`` or ``make_loader``, or by ``shorten``.
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
    from autotune.probe.workplace import Workplace

    with Workplace() as folder:
        functions = {
            "make_batch": make_batch,
            "loss": loss,
            "make_optimizer": make_optimizer,
            "evaluate": evaluate,
            "make_dataset": make_dataset,
            "collate": collate,
            "shorten": shorten,
            "make_loader": make_loader,
            "batch_dim": batch_dim,
        }
        source = _source(workload, functions, folder / "workload.pkl")
        asked = make_plan(
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
            device_wait_s=device_wait_s,
            seed=seed,
            eval_batch=eval_batch,
            recommend=False,
        )
        trains_here = not source.command  # a command trains in a process of its own
        observer = observer or LogObserver()
        if buckets is not None:
            return _by_bucket(_search_buckets(asked, buckets, storage, fresh, observer, trains_here=trains_here))
        return _answer(_search(asked, storage, fresh, observer, trains_here=trains_here))


def _answer(result: SearchResult) -> MaxBatch:
    return MaxBatch(result.answer.max_batch, result.answer.refuted_at, result)


def _by_bucket(found: Bucketed) -> MaxBatch:
    """The answers of all buckets.

    Raises:
        NothingFits, TimeRanOut: one of them has none; a note says which have.
    """
    answers = {row.bucket.max_length: _answer(row.result) if row.result else None for row in found.rows}
    error, widest = found.error, found.widest
    if error is not None:
        known = ", ".join(f"{length}: batch {int(answer)}" for length, answer in answers.items() if answer)
        error.add_note(f"length buckets with an answer: {known or 'none'}")
        raise error
    assert widest is not None  # no bucket with samples: refused before the search
    return replace(_answer(widest), buckets=answers)


def _source(workload: object, functions: "dict[str, Any]", path: Path) -> Source:
    """The workload as probe processes will load it: a reference as it is, live objects pickled into ``path``."""
    command = _command(workload)
    if not isinstance(workload, str | os.PathLike) and not command:
        from autotune.workload.live import pack

        return pack(workload, path=path, **functions)
    given = [name for name, function in functions.items() if function is not None]
    if given:
        raise UsageError(
            f"{', '.join(given)} given beside {workload!r}",
            hint="define them in that file, or pass the model or its maker instead of a path or command",
        )
    if isinstance(workload, str | os.PathLike):
        return parse_source(os.fspath(workload), (), Path.cwd())
    return parse_command(command, (), Path.cwd())


def _command(workload: object) -> tuple[str, ...]:
    """The words of a training command; empty if it is none.

    Raises:
        UsageError: it has no words, or one that is no text.
    """
    if not isinstance(workload, list | tuple):
        return ()
    wrong = [word for word in workload if not isinstance(word, str)]
    if wrong or not workload:
        raise UsageError(
            f"{wrong[0]!r} in the training command is no text" if wrong else "the training command has no words",
            hint='give all of its words as text: ["python", "train.py", "--batch-size", "{batch}"]',
        )
    return tuple(workload)


def search(
    plan: Plan, *, storage: str | None = None, fresh: bool = False, observer: SearchObserver | None = None
) -> SearchResult:
    """Find the largest safe batch of a planned search, resuming or confirming what the ledger knows.

    Raises:
        NothingFits, WorkloadError, EnvironmentTrouble, StoreError, UsageError, TimeRanOut: see ``find_max_batch``.
    """
    return _search(plan, storage, fresh, observer or LogObserver(), trains_here=False)


def search_buckets(
    plan: Plan,
    buckets: Sequence[int],
    *,
    storage: str | None = None,
    fresh: bool = False,
    observer: SearchObserver | None = None,
) -> Bucketed:
    """The same for each length bucket by itself; that nothing fits, or time ran out, is then told for each.

    Args:
        plan: of all of them.
        buckets: the largest length in each, ascending.

    Raises:
        WorkloadError, EnvironmentTrouble, StoreError, UsageError: see ``find_max_batch``.
    """
    return _search_buckets(plan, buckets, storage, fresh, observer or LogObserver(), trains_here=False)


def _search(
    plan: Plan,
    storage: str | os.PathLike[str] | None,
    fresh: bool,
    observer: SearchObserver,
    *,
    trains_here: bool,
) -> SearchResult:
    with _opened(plan, storage, observer, trains_here=trains_here) as opened:
        return opened.session(opened.plan, opened.workload).run(fresh=fresh)


def _search_buckets(
    plan: Plan,
    buckets: Sequence[int],
    storage: str | os.PathLike[str] | None,
    fresh: bool,
    observer: SearchObserver,
    *,
    trains_here: bool,
) -> Bucketed:
    from autotune import buckets as by_length

    lengths = length_buckets(buckets, plan)
    with _opened(plan, storage, observer, lengths, trains_here=trains_here) as opened:
        return by_length.search_buckets(
            opened.plan, opened.workload, opened.machine, opened.session, observer, fresh=fresh
        )


@dataclass(frozen=True, slots=True)
class _Opened:
    plan: Plan
    """With the workload's own settings."""
    workload: WorkloadInfo
    machine: Machine
    session: Callable[[Plan, WorkloadInfo], Session]
    """Opens the search of this plan, or of a part of it."""


@contextmanager
def _opened(
    plan: Plan,
    storage: str | os.PathLike[str] | None,
    observer: SearchObserver,
    buckets: Sequence[int] = (),
    *,
    trains_here: bool,
) -> Iterator[_Opened]:
    """The processes, the ledger and the budget of a search.

    ``trains_here``: the calling process goes on to train, and on the CPU what it holds is missing then.
    """
    _refuse_inside()
    from autotune.probe.host import own_data_bytes

    started = time.monotonic()
    with ExitStack() as stack:
        turns = _turns(plan, observer.note, started)
        launcher = stack.enter_context(_launcher(plan, observer.note, turns))
        launcher.preload(plan.device)
        # Processes work beside this one from here on. In what it holds, what a search brings in later counts as well.
        import autotune.report.advice
        import autotune.search.allocators
        import autotune.search.confirm
        import autotune.search.evaluation  # noqa: F401
        from autotune.storage.store import Store

        store = stack.enter_context(Store.open(os.fspath(storage) if storage else default_storage()))
        one = () if plan.length_bucket is None else (plan.length_bucket,)  # a recommendation for one is searched anew
        workload, machine = launcher.describe(plan.device, plan.multiple_of, buckets or one)
        if one:
            workload = workload.within(workload.buckets[0])
        plan = with_own_settings(plan, workload)
        held = 0
        if trains_here:
            imported = 0 if "torch._dynamo" in sys.modules else workload.step_imports_bytes
            held = max(0, own_data_bytes() + imported - workload.process_bytes)
        with launcher.turn():  # else another search's probe would count as what others hold
            budget = _budget(plan, machine, held, workload.device_used_bytes)
        observer.found(workload, machine, budget)

        def session(plan: Plan, workload: WorkloadInfo) -> Session:
            return Session(plan, store, launcher, observer, workload, machine, budget, started)

        yield _Opened(plan, workload, machine, session)
        if turns.waited_s >= _WORTH_TELLING_S:
            observer.note(f"{format_seconds(turns.waited_s)} of the time went by waiting for probes of other searches")


def _turns(plan: Plan, say: Callable[[str], None], started: float | None = None) -> "Turns":
    """``started``: instant on ``time.monotonic`` from which the time budget counts; None = it does not."""
    from autotune.probe.turns import Turns

    return Turns(
        wait_s=plan.device_wait_s,
        until=None if started is None or plan.time_budget_s is None else started + plan.time_budget_s,
        say=say,
        host_alone=plan.memory_limit_bytes is None,
    )


def _launcher(plan: Plan, say: Callable[[str], None], turns: "Turns") -> Laboratory:
    """What runs the probes of this plan's workload."""
    from autotune.probe.command.launcher import CommandLauncher
    from autotune.probe.launcher import Launcher

    if plan.source.command:
        return CommandLauncher(plan.source, timeout_s=plan.timeout_s, seed=plan.seed, say=say, turns=turns)
    return Launcher(plan.source, timeout_s=plan.timeout_s, seed=plan.seed, say=say, turns=turns)


def check(
    path: str | os.PathLike[str] = "autotune.json",
    workload: "str | os.PathLike[str] | Sequence[str] | None" = None,
    **options: "Unpack[CheckOptions]",
) -> "Checked":
    """See whether a recommendation still holds and is safe here: a gate before training.

    Workload, device and versions are compared with what the file was made for. If they are the same, one long probe in a
    fresh process runs its batch under its settings, allocator included, with the budget there is now.

    Args:
        path: what ``autotune search`` wrote.
        workload: in place of the one that the file names, which has to lie in the file's project: a reference, or the words
            of a training command.
        options: see ``autotune.recommended.given.CheckOptions``: ``device``, ``memory_limit``, ``at``, ``probe``, ``storage`` …

    Raises:
        CheckFailed: it does not hold, or its batch is not safe; says why.
        WorkloadError: the workload fails by itself; ``detail`` is its traceback.
        EnvironmentTrouble: device, ledger or processes are not usable, or the file cannot be read.
        UsageError: there is no such file, it is not a recommendation, what it was made for is not there, or an argument
            makes no sense.
    """
    found = examine(path, workload, **options)
    if found.failure is not None:
        raise found.failure
    return found


def examine(
    path: str | os.PathLike[str],
    workload: str | os.PathLike[str] | Sequence[str] | None = None,
    **options: "Unpack[CheckOptions]",
) -> "Checked":
    """As ``check``, for whoever goes on where the file does not hold: that is a value here, with the plan to ask again.

    Raises:
        WorkloadError, EnvironmentTrouble, UsageError: see ``check``.
    """
    _refuse_inside()
    from autotune.gate import Gate, overridden, plan_to_check
    from autotune.recommended.file import read_recommendation
    from autotune.recommended.given import refuse_unknown, source_to_check
    from autotune.recommended.judging import batch_of
    from autotune.report.asked import plan_again
    from autotune.storage.store import Store

    refuse_unknown(options)
    started, file = time.monotonic(), Path(path)
    content = read_recommendation(file)
    batch = batch_of(content, options.get("at", "recommended"))
    storage, observer = options.get("storage"), options.get("observer") or LogObserver()
    with ExitStack() as stack:
        store = stack.enter_context(Store.open(os.fspath(storage) if storage else default_storage()))
        recorded = _recorded(store, content.search_id)
        command = () if workload is None else _command(workload)
        ref = None if workload is None or command else os.fspath(workload)  # type: ignore[arg-type]  # no words: a path
        source, given = source_to_check(content, file, ref, command, recorded, options)
        again = overridden(
            plan_again(content, source, recorded.plan if recorded else None),
            device=options.get("device"),
            memory_limit=options.get("memory_limit"),
            timeout_s=options.get("timeout_s"),
            device_wait_s=options.get("device_wait_s"),
        )
        plan = plan_to_check(content, again)
        launcher = stack.enter_context(_launcher(plan, observer.note, _turns(plan, observer.note)))
        launcher.preload(plan.device)
        info, machine = launcher.describe(plan.device, plan.multiple_of)

        def budget_now() -> Budget:
            with launcher.turn():  # as in a search
                budget = _budget(plan, machine, 0, info.device_used_bytes)
            observer.found(info, machine, budget)
            return budget

        def session(budget: Budget) -> Session:
            return Session(plan, store, launcher, observer, info, machine, budget, started)

        gate = Gate(
            path=file,
            content=content,
            given=given,
            plan=plan,
            again=again,
            batch=batch,
            workload=info,
            machine=machine,
        )
        based_on = (recorded.based_on or recorded.id) if recorded else None
        return gate.pass_through(budget_now, session if options.get("probe", True) else None, based_on)


def _recorded(store: "Store", search_id: str) -> SearchRecord | None:
    """The search that made a file, if this ledger knows it."""
    try:
        record = store.get(search_id)
    except UsageError:
        return None
    return record if record.id == search_id else None


def inspect(plan: Plan) -> tuple[WorkloadInfo, Machine]:
    """What is recognised in the workload, and the machine it would run on; no training step is run.

    Raises:
        WorkloadError: the file cannot be loaded or its model not be made.
        EnvironmentTrouble: no such device.
    """
    _refuse_inside()
    say = LogObserver().note
    with _launcher(plan, say, _turns(plan, say)) as launcher:
        return launcher.describe(plan.device, plan.multiple_of)


def searches(storage: str | None = None, limit: int = 50) -> tuple[SearchRecord, ...]:
    """The ledger's searches, newest first.

    Raises:
        StoreError: the ledger cannot be read.
        UsageError: there is no ledger.
    """
    from autotune.storage.store import Store

    with Store.open(os.fspath(storage) if storage else default_storage(), create=False) as store:
        return store.searches(limit)


def show(search_id: str, storage: str | None = None) -> tuple[SearchRecord, tuple[ProbeResult, ...]]:
    """One search and its probes; a unique beginning of the id is enough.

    Raises:
        StoreError: the ledger cannot be read.
        UsageError: there is no ledger, or no such search in it.
    """
    from autotune.storage.store import Store

    with Store.open(os.fspath(storage) if storage else default_storage(), create=False) as store:
        record = store.get(search_id)
        return record, store.probes(record.id)


def explain(search_id: str | None = None, *, batch_size: int | None = None, storage: str | None = None) -> Explanation:
    """Where the memory of a batch size goes, as foretold from a search's recording or as its probes measured it.

    Args:
        search_id: a unique beginning of it is enough; None = the newest search with an answer.
        batch_size: None = the largest certified one.
        storage: the ledger.

    Raises:
        StoreError: the ledger cannot be read.
        UsageError: there is no ledger, no such search, or the search tells nothing of this size.
    """
    from autotune.report.explain import explain as explain_search
    from autotune.storage.store import Store

    with Store.open(os.fspath(storage) if storage else default_storage(), create=False) as store:
        if search_id is None:
            summaries, _ = store.summaries(None)
            answered = next((one.id for one in summaries if one.max_batch is not None), None)
            if answered is None:
                raise UsageError(
                    "the ledger holds no search with an answer",
                    hint="begin with: autotune search model.py; or name one that is listed by: autotune runs ls",
                )
            search_id = answered
        record = store.get(search_id)
        confirmed = store.probes(record.based_on) if record.based_on else ()
        return explain_search(record, (*confirmed, *store.probes(record.id)), batch_size)


def report(search_id: str | None = None, *, storage: str | None = None) -> "View":
    """What a report shows of a search, in whatever state it is; ``autotune.report.page`` writes it in several formats.

    Args:
        search_id: a unique beginning of it is enough; None = the newest search.
        storage: the ledger.

    Raises:
        StoreError: the ledger cannot be read.
        UsageError: there is no ledger, no such search, or no search at all.
    """
    from autotune.report.page.build import build_view
    from autotune.storage.store import Store

    with Store.open(os.fspath(storage) if storage else default_storage(), create=False) as store:
        newest = store.searches(1) if search_id is None else (store.get(search_id),)
        if not newest:
            raise UsageError("the ledger holds no search", hint="begin with: autotune search model.py")
        (record,) = newest
        confirmed = store.probes(record.based_on) if record.based_on else ()
        return build_view(record, (*confirmed, *store.probes(record.id)))


def doctor(storage: str | None = None) -> Diagnosis:
    """What is installed, which devices work, who else uses them, what bounds memory, whether the ledger can be used.

    Never raises: whatever cannot be found out is a fact of its own. Runs a small product on every device that no probe
    of another search holds.
    """
    from autotune.probe import doctor as doctors
    from autotune.probe import installation, nvml

    cards = nvml.cards()
    with doctors.standing_back(cards) as (busy, locks):
        seen = doctors.look_by_torch(busy)
    ledger = _look_at_ledger(os.fspath(storage) if storage else default_storage())
    loads = not isinstance(seen, str)
    computes = not isinstance(seen, str) and (seen.cpu_computes or any(one.computes for one in seen.devices))
    if isinstance(seen, str):
        broken = Fact(
            section="PyTorch",
            name="torch",
            value=f"cannot be loaded: {seen}",
            health=Health.TROUBLE,
            hint="pip install --force-reinstall torch, and try: python -c 'import torch'",
        )
    facts = (
        *installation.versions(),
        *installation.collisions(),
        *((broken,) if isinstance(seen, str) else seen.facts),
        *doctors.devices(seen, cards),
        *locks,
        *doctors.allocator(),
        *doctors.environment(),
        *doctors.limits(),
        ledger,
        *installation.optional(),
    )
    return Diagnosis(facts=facts, usable=loads and computes and ledger.health is not Health.TROUBLE)


def _look_at_ledger(address: str) -> Fact:
    from autotune.storage.look import look

    try:
        found = look(address)
    except AutotuneError as error:
        return Fact(section="ledger", name="place", value=error.message, health=Health.TROUBLE, hint=error.hint)
    if found.schema is None:
        return Fact(section="ledger", name="place", value=f"{found.label}: none yet; the first search makes it")
    kept = (
        "of an older autotune; the next search brings it up to date"
        if found.searches is None
        else f"{found.searches} searches"
    )
    return Fact(section="ledger", name="place", value=f"{found.label}: schema {found.schema}, {kept}")


class LogObserver:
    """Tells the ``autotune`` logger, level INFO, what happens."""

    def found(self, workload: WorkloadInfo, machine: Machine, budget: Budget) -> None:
        """The search begins."""
        _log.info(
            "%s on %s, budget %s",
            without_passwords(workload.ref),
            machine.device_name,
            format_bytes(budget.limit_bytes),
        )

    def note(self, text: str) -> None:
        """Said once."""
        _log.info("%s", text)

    def asked(self, question: Question, number: int) -> None:
        """A probe is about to start."""
        apart = "" if question.evaluate_at is None else f", evaluation at {question.evaluate_at}"
        _log.info("probe %d: batch %d%s, %s (%s)", number, question.batch_size, apart, question.form, question.reason)

    def answered(self, result: ProbeResult, number: int) -> None:
        """A probe is finished."""
        _log.info("probe %d: batch %d: %s in %.1f s", number, result.batch_size, result.outcome, result.seconds)


def _refuse_inside() -> None:
    if os.environ.get(INSIDE_VARIABLE):
        raise WorkloadError(
            "a search was started while autotune was loading or probing this very file",
            hint='put the call of find_max_batch() under `if __name__ == "__main__":`',
        )


def _budget(plan: Plan, machine: Machine, caller_bytes: int, used_bytes: int | None) -> Budget:
    """``used_bytes``: of the device, where NVML does not tell."""
    from autotune.probe import nvml
    from autotune.probe.budget import make_budget
    from autotune.probe.host import host_limit

    return make_budget(
        machine,
        memory_limit_bytes=plan.memory_limit_bytes,
        others_bytes=nvml.used_bytes(machine.device_uuid) if used_bytes is None else used_bytes,
        host=host_limit(),
        caller_bytes=caller_bytes,
    )
