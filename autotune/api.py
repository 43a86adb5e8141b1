"""What autotune offers to Python and to its own command line: each call is described here and done in ``front/``.

Importing this file costs next to nothing: what a call needs comes with the call, torch never.
"""

from __future__ import annotations

import os
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Unpack

from autotune import signatures as types

if typing.TYPE_CHECKING:
    from autotune.signatures import LogObserver, MaxBatch
else:

    def __getattr__(name: str) -> object:
        """The classes among what is offered: they come with all that they are made of."""
        if name not in ("LogObserver", "MaxBatch"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(types, name)


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
    parallel: str = "default",
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
    ranks: int | str = 1,
    storage: str | os.PathLike[str] | None = None,
    fresh: bool = False,
    observer: types.SearchObserver | None = None,
    executor: str = "local",
    workers: str | int | None = None,
    executor_options: Sequence[str] = (),
) -> types.MaxBatch:
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
        parallel: with ``ranks``: how they train together: ``default`` and ``ddp`` (DistributedDataParallel), ``fsdp``
            (FSDP2, a share of everything on each rank), ``zero`` (DDP with a share of the optimizer's state),
            ``tensor`` (split layers, one batch for all ranks; by ``make_plan`` or transformers' plan). A search of settings
            begins from ``ddp`` where nothing else is given, and tries ``fsdp`` and ``zero``.
        allocator: PyTorch allocator configuration, for example ``expandable_segments:True``; ``auto`` tries expandable
            segments as well where more is expected of them, and keeps them if more fits.
        accumulate: micro-batches per optimizer step.
        memory_limit: device-wide limit, bytes or ``"24GiB"``.
        multiple_of: only sizes that are multiples of this.
        start_batch: first size to try, where the limit is not foretold from a recording.
        max_batch: largest size to try.
        timeout_s: wall limit of one probe, seconds.
        time_budget_s: wall limit of this call, seconds; one that goes on with a search has the whole of its own.
        device_wait_s: how long probes of other searches on the device are waited for, each time, seconds; 0 = not at all.
        seed: of every probe.
        eval_batch: evaluate in batches of this size; default: of the training batch's, as far as they fit.
        buckets: length buckets, for samplers that group samples by length: the largest length in each, ascending. Each
            gets an answer of its own, for samples at most so long (see ``MaxBatch.buckets``). Lengths must vary: in
            ``make_dataset`` or ``make_loader``, or by ``shorten``.
        ranks: processes that train together in each probe by ``DistributedDataParallel``, each with batches of its own: one
            a CUDA device, or so many on the CPU; ``"all"`` for every CUDA device. The answer is the batch of one rank, and
            ``memory_limit`` is that of each. Functions that take ``rank`` and ``world_size`` are told.
        storage: ledger, a path or database URL; default: the platform's data directory or ``AUTOTUNE_STORAGE``.
        fresh: search anew, whatever the ledger knows.
        observer: is told of every probe; default: the ``autotune`` logger at level INFO.
        executor: where probes run: ``local``, ``slurm`` or ``ray`` (see docs/clusters.md).
        workers: how many run side by side; ``local`` also takes ``all`` and names of devices, ``"cuda:0,cuda:2"``.
        executor_options: of the executor, as ``"NAME=VALUE"``.

    Raises:
        NothingFits: not even the smallest batch is safe.
        WorkloadError: the workload fails by itself; ``detail`` is its traceback.
        EnvironmentTrouble: device, ledger or processes are not usable.
        UsageError: an argument makes no sense.
        TimeRanOut: the time budget ended first; the next call goes on from there.
    """
    from autotune.front.max_batch import find

    return find(
        workload,
        {
            "make_batch": make_batch,
            "loss": loss,
            "make_optimizer": make_optimizer,
            "evaluate": evaluate,
            "make_dataset": make_dataset,
            "collate": collate,
            "shorten": shorten,
            "make_loader": make_loader,
            "batch_dim": batch_dim,
        },
        {
            "device": device,
            "precision": precision,
            "parallel": parallel,
            "allocator": allocator,
            "accumulate": accumulate,
            "memory_limit": memory_limit,
            "multiple_of": multiple_of,
            "start_batch": start_batch,
            "max_batch": max_batch,
            "timeout_s": timeout_s,
            "time_budget_s": time_budget_s,
            "device_wait_s": device_wait_s,
            "seed": seed,
            "eval_batch": eval_batch,
            "ranks": ranks,
            "recommend": False,
        },
        buckets=buckets,
        storage=storage,
        fresh=fresh,
        observer=observer,
        where={"executor": executor, "workers": workers, "executor_options": executor_options},
    )


def plan(
    ref: str,
    *,
    script_args: Sequence[str] = (),
    command: Sequence[str] = (),
    templates: Sequence[str] = (),
    **options: Unpack[types.PlanOptions],
) -> types.Plan:
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
    from autotune.front.given import plan_of

    return plan_of(ref, script_args, command, templates, options)


def search(
    plan: types.Plan,
    *,
    storage: str | None = None,
    fresh: bool = False,
    observer: types.SearchObserver | None = None,
    **where: Unpack[types.Where],
) -> types.SearchResult:
    """Find the largest safe batch of a planned search, resuming or confirming what the ledger knows.

    ``where`` says where probes run, as ``find_max_batch`` explains: ``executor``, ``workers`` and ``executor_options``.

    Raises:
        NothingFits, WorkloadError, EnvironmentTrouble, StoreError, UsageError, TimeRanOut: see ``find_max_batch``.
    """
    from autotune.front import searching

    return searching.search(plan, storage, fresh, observer, where, trains_here=False)


def search_kinds(
    plan: types.Plan,
    *,
    storage: str | None = None,
    fresh: bool = False,
    observer: types.SearchObserver | None = None,
    **where: Unpack[types.Where],
) -> tuple[types.SearchResult, tuple[types.SearchResult | types.KindFailed, ...]]:
    """The same for each kind of machine among the workers; each has an answer of its own.

    Returns:
        The answer of the first worker's kind, and what came out on the others: that one has no answer is a value.

    Raises:
        NothingFits, WorkloadError, EnvironmentTrouble, StoreError, UsageError, TimeRanOut: see ``find_max_batch``.
    """
    from autotune.front import searching

    return searching.search_kinds(plan, storage, fresh, observer, where)


def search_buckets(
    plan: types.Plan,
    buckets: Sequence[int],
    *,
    storage: str | None = None,
    fresh: bool = False,
    observer: types.SearchObserver | None = None,
    **where: Unpack[types.Where],
) -> types.Bucketed:
    """The same for each length bucket by itself; that nothing fits, or time ran out, is then told for each.

    Args:
        plan: of all of them.
        buckets: the largest length in each, ascending.

    Raises:
        WorkloadError, EnvironmentTrouble, StoreError, UsageError: see ``find_max_batch``.
    """
    from autotune.front import searching

    return searching.search_buckets(plan, buckets, storage, fresh, observer, where, trains_here=False)


def predict(
    plan: types.Plan,
    *,
    storage: str | None = None,
    fresh: bool = False,
    observer: types.SearchObserver | None = None,
    verify: bool | None = None,
) -> types.Predicted:
    """How large a batch ``plan.ranks`` devices would hold, found out on one: one process trains as one of the ranks, the
    others are stood in for.

    Ways to share the work (``plan.settings.parallel``) are compared where none is asked for. An answer is kept as a search
    of its own that never counts for one that ran.

    Args:
        plan: as ``api.plan(ref, ranks=8, recommend=False)`` makes it; ``memory_limit`` is that of each device, and
            ``time_budget_s`` is for all of it: every way, more ranks where nothing fits, and the ranks themselves.
        storage: the ledger.
        fresh: measure again, whatever the ledger knows.
        observer: is told of every probe; default: as in ``find_max_batch``.
        verify: run all ranks as well, at the predicted batch first; None = where this host has as many CUDA devices.

    Returns:
        What came out for each way. That nothing fits, or a way does not suit the model, is a value.

    Raises:
        WorkloadError: the workload fails by itself; ``detail`` is its traceback.
        EnvironmentTrouble: device, ledger or processes are not usable.
        UsageError: there is one rank, or the workload is a training command or spreads itself over devices.
        TimeRanOut: the time budget ended before any answer.
    """
    from autotune.front import predicting

    return predicting.predict(plan, storage, fresh, observer, verify=verify)


def check(
    path: str | os.PathLike[str] = "autotune.json",
    workload: str | os.PathLike[str] | Sequence[str] | None = None,
    **options: Unpack[types.CheckOptions],
) -> types.Checked:
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
    **options: Unpack[types.CheckOptions],
) -> types.Checked:
    """As ``check``, for whoever goes on where the file does not hold: that is a value here, with the plan to ask again.

    Raises:
        WorkloadError, EnvironmentTrouble, UsageError: see ``check``.
    """
    from autotune.front import checking

    return checking.examine(path, workload, **options)


def inspect(plan: types.Plan) -> tuple[types.WorkloadInfo, types.Machine]:
    """What is recognised in the workload, and the machine it would run on; no training step is run.

    Raises:
        WorkloadError: the file cannot be loaded or its model not be made.
        EnvironmentTrouble: no such device.
    """
    from autotune.front import laboratory

    return laboratory.inspect(plan)


def searches(storage: str | None = None, limit: int = 50) -> tuple[types.SearchRecord, ...]:
    """The ledger's searches, newest first.

    Raises:
        StoreError: the ledger cannot be read.
        UsageError: there is no ledger.
    """
    from autotune.front import kept

    return kept.searches(storage, limit)


def show(search_id: str, storage: str | None = None) -> tuple[types.SearchRecord, tuple[types.ProbeResult, ...]]:
    """One search and its probes; a unique beginning of the id is enough.

    Raises:
        StoreError: the ledger cannot be read.
        UsageError: there is no ledger, or no such search in it.
    """
    from autotune.front import kept

    return kept.show(search_id, storage)


def explain(
    search_id: str | None = None, *, batch_size: int | None = None, storage: str | None = None
) -> types.Explanation:
    """Where the memory of a batch size goes, as foretold from a search's recording or as its probes measured it.

    Args:
        search_id: a unique beginning of it is enough; None = the newest search with an answer.
        batch_size: None = the largest certified one.
        storage: the ledger.

    Raises:
        StoreError: the ledger cannot be read.
        UsageError: there is no ledger, no such search, or the search tells nothing of this size.
    """
    from autotune.front import kept

    return kept.explain(search_id, batch_size, storage)


def report(search_id: str | None = None, *, storage: str | None = None) -> types.View:
    """What a report shows of a search, in whatever state it is; ``autotune.report.page`` writes it in several formats.

    Args:
        search_id: a unique beginning of it is enough; None = the newest search.
        storage: the ledger.

    Raises:
        StoreError: the ledger cannot be read.
        UsageError: there is no ledger, no such search, or no search at all.
    """
    from autotune.front import kept

    return kept.report(search_id, storage)


def diagnose(
    workload: object,
    make_batch: Callable[[int], object] | None = None,
    *,
    functions: Mapping[str, object] | None = None,
    script_args: Sequence[str] = (),
    batch: int | None = None,
    steps: int | None = None,
    only: Sequence[str] = (),
    output: str | os.PathLike[str] | None = None,
    recommendation: str | os.PathLike[str] = "autotune.json",
    storage: str | os.PathLike[str] | None = None,
    observer: types.SearchObserver | None = None,
    keep: Callable[[types.Findings], None] | None = None,
    **options: Unpack[types.PlanOptions],
) -> types.Findings:
    """What a training does with memory over many steps: above all whether something grows, what, and made where.

    Sections that have no answer, because their training ended too early, are among ``Findings.unanswered``.

    Args:
        workload: as in ``find_max_batch``, but no command.
        make_batch: as in ``find_max_batch``.
        functions: ``loss``, ``make_optimizer`` … as ``find_max_batch`` takes them, where ``workload`` is no reference.
        script_args: what the file shall see in ``sys.argv[1:]``.
        batch: size to train at; None = what ``recommendation`` or the ledger say of this workload, else a small one.
        steps: training steps to look at; None = as many as it takes to tell.
        only: sections; none = all.
        output: folder for files that a section leaves.
        recommendation: an ``autotune.json``; there need be none.
        storage: ledger to look for an earlier answer in; there need be none.
        observer: is told what happens; default: as in ``find_max_batch``.
        keep: is given what was found after each section that has an answer, for whoever is stopped before the last.
        options: ``device``, ``memory_limit``, ``timeout_s``, ``seed``, ``precision`` … as in ``find_max_batch``.

    Raises:
        NothingFits: not even one step fits. This error and the next two: only where no section has an answer.
        WorkloadError: the workload fails by itself; ``detail`` is its traceback.
        EnvironmentTrouble: device or processes are not usable.
        UsageError: an argument makes no sense.
    """
    from autotune.front import diagnosing

    return diagnosing.diagnose(
        workload,
        {"make_batch": make_batch, **(functions or {})},
        options,
        script_args=script_args,
        asked=diagnosing.Asked(
            batch=batch,
            steps=steps,
            only=only,
            output=output,
            recommendation=recommendation,
            storage=storage,
        ),
        observer=observer,
        keep=keep,
    )


def doctor(storage: str | None = None) -> types.Diagnosis:
    """What is installed, which devices work, who else uses them, what bounds memory, whether the ledger can be used.

    Never raises: whatever cannot be found out is a fact of its own. Runs a small product on every device that no probe
    of another search holds.
    """
    from autotune.front import doctor as here

    return here.doctor(storage)


__all__ = [
    "LogObserver",
    "MaxBatch",
    "check",
    "diagnose",
    "doctor",
    "examine",
    "explain",
    "find_max_batch",
    "inspect",
    "plan",
    "predict",
    "report",
    "search",
    "search_buckets",
    "search_kinds",
    "searches",
    "show",
]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
