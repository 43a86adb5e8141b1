"""A checked plan from what a person typed or a script passed. Every refusal names the value and what to give instead."""

import operator
from collections.abc import Sequence
from dataclasses import replace
from typing import SupportsIndex, TypedDict

from autotune.arguments import count, flag, one_of, seconds, shown, texts
from autotune.errors import UsageError
from autotune.knobs import OF_RANKS, choices, knob_of, told
from autotune.model import Choice, Objective, Parallel, Plan, Precision, Settings, Source, WorkloadInfo
from autotune.ranking import count_ranks, refuse_sharing, refuse_tensor_beside_others, refuse_with_ranks
from autotune.units import LARGEST, parse_bytes

ALLOCATORS = {"default": "", "native": "", "expandable_segments": "expandable_segments:True", "auto": ""}
"""Short names of allocator configurations; anything else is taken as PyTorch's own syntax."""
OTHER_ALLOCATORS = {"auto": ("expandable_segments:True",)}
"""What is tried as well where more is expected of it."""
_MOST_TRIALS = 1_000_000
_LARGEST_SEED = (1 << 32) - 1
"""NumPy takes no larger one."""


class PlanOptions(TypedDict, total=False):
    """What may be asked of a search beside its workload; ``find_max_batch`` explains each."""

    device: str
    precision: str
    parallel: str
    allocator: str
    accumulate: int
    memory_limit: str | int | None
    multiple_of: int
    start_batch: int | None
    max_batch: int | None
    timeout_s: float
    time_budget_s: float | None
    device_wait_s: float
    seed: int
    recommend: bool
    tune: bool
    objective: str
    fix: Sequence[str]
    allow: Sequence[str]
    forbid: Sequence[str]
    effective_batch: int | None
    world: int | None
    ranks: int | str
    trials: int
    eval_batch: int | None


def make_plan(
    source: Source,
    *,
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
    recommend: bool = True,
    tune: bool = False,
    objective: str = "throughput",
    fix: Sequence[str] = (),
    allow: Sequence[str] = (),
    forbid: Sequence[str] = (),
    effective_batch: int | None = None,
    world: int | None = None,
    ranks: int | str = 1,
    trials: int = 12,
    eval_batch: int | None = None,
) -> Plan:
    """The plan of a search of ``source``; ``tune``: of settings as well as of the batch. ``world``: None = as ``ranks``.

    Raises:
        UsageError: a value makes no sense.
    """
    one_of("precision", precision, [kind.value for kind in Precision])
    one_of("parallel", parallel, [kind.value for kind in Parallel])
    one_of("objective", objective, [kind.value for kind in Objective])
    accumulate, multiple_of = count("accumulate", accumulate), count("multiple_of", multiple_of)
    start_batch = None if start_batch is None else count("start_batch", start_batch)
    max_batch = None if max_batch is None else count("max_batch", max_batch)
    if start_batch is not None and max_batch is not None and start_batch > max_batch:
        raise UsageError(
            f"start_batch {start_batch} is above max_batch {max_batch}",
            hint="lower --start-batch or raise --max-batch",
        )
    if max_batch is not None and max_batch < multiple_of:
        raise UsageError(
            f"no multiple of {multiple_of} is within the largest batch allowed, {max_batch}",
            hint="raise --max-batch or lower --multiple-of",
        )
    timeout_s = seconds("timeout_s", timeout_s)
    time_budget_s = None if time_budget_s is None else seconds("time_budget_s", time_budget_s)
    if device_wait_s != 0:
        device_wait_s = seconds("device_wait_s", device_wait_s, "from 0 on")
    seed = count("seed", seed, 0, _LARGEST_SEED)
    if not isinstance(allocator, str):
        raise UsageError(
            f"allocator is {shown(allocator)}, which is no text", hint='for example "expandable_segments:True"'
        )
    fix, allow, forbid = texts("fix", fix), texts("allow", allow), texts("forbid", forbid)
    limit = _limit(memory_limit)
    settings = Settings(
        precision=Precision(precision),
        allocator=ALLOCATORS.get(allocator, allocator),
        parallel=Parallel(parallel),
        accumulate=accumulate,
    )
    ranks = count_ranks(ranks, str(device))
    world = ranks if world is None else count("world", world)
    refuse_sharing(settings.parallel, ranks, world)
    effective_batch = None if effective_batch is None else count("effective_batch", effective_batch)
    if effective_batch is not None and accumulate > 1:
        raise UsageError(
            f"accumulate {accumulate} and effective_batch {effective_batch} are both given",
            hint="leave out accumulate: it follows from the effective batch and the batch that fits",
        )
    if effective_batch is not None:
        from autotune.search.settings.sizes import share_of

        replicas = 1 if settings.parallel is Parallel.TENSOR else world
        share_of(effective_batch, replicas, multiple_of)  # refuses what cannot be held exactly
    eval_batch = None if eval_batch is None else count("eval_batch", eval_batch)
    trials = count("trials", trials, 0, _MOST_TRIALS)
    recommend, tune = flag("recommend", recommend), flag("tune", tune)
    if source.command:
        space = told(source.templates, settings, effective_batch, tune=tune, fix=fix, allow=allow, forbid=forbid)
    else:
        settings, space = _choices(settings, ranks, fix, allow, forbid) if tune else (settings, ())
    if ranks > 1:
        refuse_with_ranks(source, str(device), ranks, world)
    return Plan(
        source=source,
        settings=settings,
        space=space,
        objective=Objective(objective),
        effective_batch=effective_batch,
        world=world,
        ranks=ranks,
        trials=trials,
        eval_batch=eval_batch,
        other_allocators=OTHER_ALLOCATORS.get(allocator, ()),
        device=str(device),
        memory_limit_bytes=limit,
        multiple_of=multiple_of,
        start_batch=start_batch,
        max_batch=max_batch,
        timeout_s=timeout_s,
        time_budget_s=time_budget_s,
        device_wait_s=float(device_wait_s),
        seed=seed,
        recommend=recommend,
    )


def _choices(
    settings: Settings, ranks: int, fix: Sequence[str], allow: Sequence[str], forbid: Sequence[str]
) -> tuple[Settings, tuple[Choice, ...]]:
    """The settings that a search begins from, and what of them it may change.

    Where it may change how ranks train together, it begins from ``ddp``: what it finds is applied where ``prepare`` joins
    them, and ``default`` leaves that to the training. Whoever keeps ``parallel`` by name keeps that too. Tensor parallel is
    searched by itself: its ranks train on one batch, and steps of other samples are not compared.

    Raises:
        UsageError: as ``choices`` does, or it is to be searched beside others.
    """
    if settings.parallel is Parallel.TENSOR:
        named = [item.partition("=")[0].strip() for item in (*fix, *allow)]
        forbid = (*forbid, *(knob.name for knob in OF_RANKS if knob.name not in named))
    space = choices(fix, allow, forbid, settings, ranks)
    kept = any(item.strip() == "parallel" for item in (*fix, *forbid))
    refuse_tensor_beside_others(settings, space)
    joined = any(knob_of(choice.knob).ranks for choice in space) and not kept
    if ranks == 1 or settings.parallel is not Parallel.DEFAULT or not joined:
        return settings, space
    settings = replace(settings, parallel=Parallel.DDP)
    return settings, choices(fix, allow, forbid, settings, ranks)


def length_buckets(lengths: Sequence[int], plan: Plan) -> tuple[int, ...]:
    """Checked bounds of length buckets.

    Raises:
        UsageError: they are not in ascending order and above zero, or the plan is of something that has none.
    """
    if isinstance(lengths, str | bytes) or not isinstance(lengths, Sequence) or not lengths:
        raise UsageError(f"buckets is {lengths!r}", hint="give the longest length of each: buckets=[128, 512, 2048]")
    for length in lengths:
        if isinstance(length, bool) or not isinstance(length, SupportsIndex) or operator.index(length) < 1:
            raise UsageError(
                f"{length!r} is no length of a bucket", hint="give whole numbers from 1 on: --buckets 128,512,2048"
            )
    checked = tuple(operator.index(length) for length in lengths)
    ascending = tuple(sorted(set(checked)))
    if checked != ascending:
        what = "not in ascending order" if len(ascending) == len(checked) else "not all different"
        raise UsageError(
            f"length buckets {_listed(checked)} are {what}", hint=f"give them as --buckets {_listed(ascending)}"
        )
    if plan.source.command:
        raise UsageError(
            "length buckets are made of the samples of a data set, and what a training command trains on is not seen",
            hint=f"search each length by itself, for example with: --max-length {checked[0]} in the command",
        )
    if plan.ranks > 1:
        raise UsageError(
            f"length buckets are searched in one process yet, and --ranks is {plan.ranks}",
            hint="leave out --ranks, or --buckets",
        )
    if plan.space or plan.effective_batch is not None:
        raise UsageError(
            "length buckets are of the batch alone, and a search of settings would choose others for each",
            hint="use: autotune max-batch MODEL --buckets " + _listed(checked),
        )
    return checked


def _listed(lengths: Sequence[int]) -> str:
    return ",".join(str(length) for length in lengths)


def with_own_settings(plan: Plan, workload: WorkloadInfo) -> Plan:
    """The plan with what the workload trains with by itself, wherever nothing else was asked for.

    ``accumulate`` stays out of it where the samples of a step are given: it follows from them.
    """
    asked = plan.settings.changes(Settings())
    changes = {name: value for name, value in workload.own.changes(Settings()).items() if name not in asked}
    if plan.effective_batch is not None:
        changes.pop("accumulate", None)
    return replace(plan, settings=replace(plan.settings, **changes))


def _limit(value: object) -> int | None:
    """A memory limit in whole bytes; None = none.

    Raises:
        UsageError: it is neither bytes nor a size in words.
    """
    if value is None:
        return None
    try:
        if isinstance(value, str):
            return parse_bytes(value)
    except ValueError as error:
        raise UsageError(
            f"memory limit {error}", hint="write for example 24GiB (powers of two) or 40GB (powers of ten)"
        ) from error
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 1 <= value <= LARGEST
        or value != int(value)
    ):
        raise UsageError(f"memory limit is {shown(value)}", hint='give whole bytes, or a size such as "24GiB"')
    return int(value)
