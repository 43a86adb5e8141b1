"""The command that asks the same question again, from the plan of a search."""

import shlex
from collections.abc import Iterator
from dataclasses import replace

from autotune.knobs import choices, told
from autotune.knobs.choosing import AUTO, NONE
from autotune.model import Choice, Objective, Plan, Settings, Source
from autotune.units import GIB, KIB, MIB

_DEFAULT = Plan(source=Source(ref=""))


def reproduction(plan: Plan, own: Settings) -> tuple[str, str]:
    """The command, and what to mind with it; without a command, why there is none.

    Args:
        plan: of the search.
        own: what the workload trains with by itself, and need not be told.
    """
    if plan.source.pickle_path:
        return (
            "",
            "The search was called from Python with live objects: call find_max_batch() from the same script again.",
        )
    where = f"Run it in {plan.source.directory}. " if plan.source.directory else ""
    return _asking(plan, own, "--fresh"), where + "It measures everything again, whatever the ledger knows."


def where_the_ranks_are(plan: Plan, own: Settings) -> str:
    """The command that runs the ranks of a predicted plan."""
    return _asking(replace(plan, predicted=False, recommend=False), own)


def _asking(plan: Plan, own: Settings, *more: str) -> str:
    """The command that asks the question of a plan; ``more``: options after it."""
    command = "predict" if plan.predicted else "search" if plan.recommend else "max-batch"
    words = ["autotune", command, *([] if plan.source.command else [plan.source.ref]), *_options(plan, own)]
    if plan.recommend:
        words += _searched(plan)
    words += more
    behind = plan.source.command or plan.source.script_args
    return shlex.join(words) + (f" -- {_command(behind)}" if behind else "")


def _options(plan: Plan, own: Settings) -> Iterator[str]:
    """Options of both commands that are not at their defaults."""
    settings, default = plan.settings, _DEFAULT
    given: tuple[tuple[str, object, object], ...] = (
        ("--device", plan.device, default.device),
        ("--memory-limit", _size(plan.memory_limit_bytes), None),
        ("--precision", settings.precision.value, own.precision.value),
        ("--parallel", settings.parallel.value, own.parallel.value),
        ("--allocator", "auto" if plan.other_allocators else settings.allocator, own.allocator),
        ("--accumulate", settings.accumulate, settings.accumulate if plan.effective_batch else own.accumulate),
        ("--multiple-of", plan.multiple_of, default.multiple_of),
        ("--start-batch", plan.start_batch, None),
        ("--max-batch", plan.max_batch, None),
        ("--eval-batch", plan.eval_batch, None),
        ("--timeout", _number(plan.timeout_s), _number(default.timeout_s)),
        ("--time-budget", _number(plan.time_budget_s), None),
        ("--device-wait", _number(plan.device_wait_s), _number(default.device_wait_s)),
        ("--seed", plan.seed, default.seed),
        ("--ranks", plan.ranks, default.ranks),
    )
    for option, value, usual in given:
        if value != usual:
            yield from (option, str(value))
    for name, template in plan.source.templates:
        yield from ("--set", f"{name}={template}")


def _searched(plan: Plan) -> Iterator[str]:
    """Options of ``search`` alone."""
    if plan.objective is not Objective.THROUGHPUT:
        yield from ("--objective", plan.objective.value)
    if plan.effective_batch is not None:
        yield from ("--effective-batch", str(plan.effective_batch))
    if plan.world != plan.ranks:
        yield from ("--world", str(plan.world))
    if plan.trials != _DEFAULT.trials:
        yield from ("--trials", str(plan.trials))
    if plan.space != _usual(plan):
        yield from _space(plan.space)


def _usual(plan: Plan) -> tuple[Choice, ...]:
    """What is searched if nothing is said of it."""
    if plan.source.command:
        templates, settings = plan.source.templates, plan.settings
        return told(templates, settings, plan.effective_batch, tune=True, fix=(), allow=(), forbid=())
    return choices((), (), (), plan.settings, plan.ranks)


def _space(space: tuple[Choice, ...]) -> Iterator[str]:
    if not any(AUTO in choice.values or len(choice.values) > 1 for choice in space):
        yield from ("--allow", NONE)  # else what is not fixed would be searched
    for choice in space:
        name, values = choice.knob, choice.values
        if AUTO in values:
            yield from ("--allow", name)
        for value in values:
            if value.startswith("!"):
                yield from ("--forbid", f"{name}={value[1:]}")
            elif value != AUTO:
                yield from ("--fix" if len(values) == 1 else "--allow", f"{name}={value}")


def _command(words: tuple[str, ...]) -> str:
    """As one types it: braces of placeholders need no quotes in common shells."""
    return shlex.join(words).replace("'{batch}'", "{batch}").replace("'{scratch}'", "{scratch}")


def _size(size_bytes: int | None) -> str | None:
    """Exactly, in the largest unit that is."""
    if size_bytes is None:
        return None
    for factor, unit in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size_bytes % factor == 0:
            return f"{size_bytes // factor}{unit}"
    return str(size_bytes)


def _number(value: float | None) -> str | None:
    return None if value is None else f"{value:g}"
