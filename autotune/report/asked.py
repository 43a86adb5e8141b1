"""What a search was asked for, as the recommendation keeps it: written with an answer, made a plan again by ``check``."""

from dataclasses import replace

from autotune.knobs import knob_of
from autotune.knobs.choosing import wanted
from autotune.model import Choice, Parallel, Plan, SearchResult, Settings, Source
from autotune.report.fields import Document
from autotune.report.filled import settings_fields
from autotune.report.settings_fields import Asked
from autotune.search.settings.sizes import share_of

_PLAIN = (
    "device",
    "memory_limit_bytes",
    "multiple_of",
    "start_batch",
    "max_batch",
    "eval_batch",
    "timeout_s",
    "time_budget_s",
    "seed",
    "recommend",
    "other_allocators",
    "objective",
    "effective_batch",
    "world",
    "ranks",
    "trials",
    "length_bucket",
)
"""Fields that a plan and the file write alike. How long a device is waited for is for whoever asks again to say."""


def asked_fields(result: SearchResult) -> Asked:
    """What this search was asked for; its settings are those given by hand, without what the workload brings along."""
    plan = result.plan
    given = _by_hand(plan.settings, result.workload.own)
    return Asked(
        **{name: getattr(plan, name) for name in _PLAIN},
        settings=settings_fields(given),
        accumulate=given.accumulate,
        space={choice.knob: choice.values for choice in plan.space},
        script_args=plan.source.script_args,
        command=plan.source.command,
        templates=dict(plan.source.templates),
    )


def plan_again(content: Document, source: Source, recorded: Plan | None = None) -> Plan:
    """The plan of the search that made the file, for this workload.

    Args:
        content: a file of an older version does not say what was asked for.
        source: the workload.
        recorded: what the ledger says of that search, where it knows it: older files are asked again like this, or else
            for the batch under their settings.

    Raises:
        UsageError: the file says what no search can be asked for.
    """
    asked = content.asked
    if asked is None:
        if recorded is not None:
            return replace(recorded, source=source)
        return Plan(source=source, settings=settings_of(content))
    space = tuple(Choice(knob=name, values=values) for name, values in asked.space.items())
    for choice in space:
        wanted(knob_of(choice.knob), choice, Settings())
    for allocator in asked.other_allocators:
        Settings(allocator=allocator)
    if asked.effective_batch is not None:
        replicas = 1 if asked.settings.parallel is Parallel.TENSOR else asked.world
        share_of(asked.effective_batch, replicas, asked.multiple_of)
    return Plan(
        source=source,
        settings=Settings(**dict(asked.settings), accumulate=asked.accumulate),
        space=space,
        **{name: getattr(asked, name) for name in _PLAIN},
    )


def settings_of(content: Document) -> Settings:
    """The settings that a document recommends, accumulation included."""
    return Settings(**dict(content.settings), accumulate=content.batch.accumulate)


def _by_hand(settings: Settings, own: Settings) -> Settings:
    """Without what is as the workload has it by itself."""
    defaults = Settings()
    same = [name for name, value in own.changes(defaults).items() if getattr(settings, name) == value]
    return replace(settings, **{name: getattr(defaults, name) for name in same})
