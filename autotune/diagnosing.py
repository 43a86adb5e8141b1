"""One diagnosis: which size is trained, each section in a process of its own, and what becomes of its end. Owned by ``api``."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from autotune.diagnose.leaks.judge import judge_leaks
from autotune.errors import AutotuneError, EnvironmentTrouble, NothingFits, UsageError, WorkloadError
from autotune.model import Budget, Findings, Machine, Outcome, Plan, SearchRecord, Section, Settings, WorkloadInfo
from autotune.probe.launcher import Examined, Launcher
from autotune.report.document import settings_of
from autotune.report.fields import Document
from autotune.units import LARGEST

SMALL = (2, 1, 8, 64)
"""Sizes that are tried one after the other where nothing is known: batch norm refuses one sample, others want multiples."""
_OF_SIZE = (Outcome.SIZE_LIMIT, Outcome.WORKLOAD_ERROR)
"""Ends of a first step that another size may not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What is to be trained, and why at that size."""

    batches: tuple[int, ...]
    """To be tried in turn; the first that trains is looked at."""
    batch_from: str
    settings: Settings


def start_of(
    asked: int | None,
    plan: Plan,
    workload: WorkloadInfo,
    recommendation: Document | None,
    searches: Sequence[SearchRecord],
) -> Start:
    """The size that was asked for, else the recommended one, else one that the ledger knows to be safe, else a small one.

    Args:
        asked: by the user.
        plan: with the workload's own settings.
        workload: as it is now.
        recommendation: an ``autotune.json`` that lies here; counts if it is of this workload.
        searches: of the ledger, newest first; counts which is of this workload and has an answer.
    """
    if asked is not None:
        return Start(batches=(asked,), batch_from="as asked for", settings=plan.settings)
    if recommendation is not None and recommendation.workload.fingerprint == workload.fingerprint:
        settings = replace(settings_of(recommendation), accumulate=recommendation.batch.accumulate)
        size = recommendation.batch.micro_batch
        return Start(batches=(size,), batch_from="recommended in autotune.json, with its settings", settings=settings)
    for record in searches:
        answer = record.answer
        if answer is not None and record.workload.fingerprint == workload.fingerprint:
            size = answer.recommended_batch or answer.max_batch
            settings = answer.settings or record.plan.settings
            return Start(
                batches=(size,), batch_from=f"answer of search {record.id}, with its settings", settings=settings
            )
    most = workload.data_set_size or LARGEST
    sizes = tuple(plan.multiple_of * size for size in SMALL if plan.multiple_of * size <= most)
    return Start(batches=sizes or (1,), batch_from="a small one; name yours with --batch", settings=plan.settings)


def run_sections(
    launcher: Launcher,
    start: Start,
    sections: Sequence[Section],
    *,
    workload: WorkloadInfo,
    machine: Machine,
    budget: Budget,
    steps: int | None,
    output: str,
    say: Callable[[str], None],
) -> Findings:
    """Look at each section; see ``api.diagnose``.

    Raises:
        AutotuneError: the training fails by itself, or does not fit at all.
    """
    findings = Findings(
        workload=workload,
        machine=machine,
        budget=budget,
        batch_size=start.batches[0],
        batch_from=start.batch_from,
        settings=start.settings,
    )
    sizes = list(start.batches)
    for section in sections:
        say(f"{section}: training at batch {sizes[0]} ...")
        ended = launcher.examine(section, sizes[0], start.settings, budget, steps=steps, output=output)
        first = ended
        while len(sizes) > 1 and ended.outcome in _OF_SIZE and _step_of(ended) <= 1:
            del sizes[0]
            ended = launcher.examine(section, sizes[0], start.settings, budget, steps=steps, output=output)
        if ended.outcome in _OF_SIZE:
            ended = first  # no size trains: the first one says best why
        sizes = sizes[:1]
        findings = _with(replace(findings, batch_size=sizes[0]), section, ended)
    return findings


def _step_of(ended: Examined) -> int:
    return (ended.failure.step if ended.failure else None) or 0


def _with(findings: Findings, section: Section, ended: Examined) -> Findings:
    """The findings with what one section saw.

    Raises:
        AutotuneError: it saw nothing, because of what ended its process.
    """
    if section is Section.LEAKS:
        grew_to_death = ended.outcome in (Outcome.OUT_OF_MEMORY, Outcome.HOST_OUT_OF_MEMORY) and _step_of(ended) > 1
        if ended.seen is None or (ended.failure is not None and not grew_to_death):
            raise _trouble(findings, section, ended)
        return replace(findings, leaks=judge_leaks(ended.seen, ended.failure))
    raise NotImplementedError(section)


def _trouble(findings: Findings, section: Section, ended: Examined) -> AutotuneError:
    """Why a section has nothing to say."""
    failure, size = ended.failure, findings.batch_size
    kinds: dict[Outcome, type[AutotuneError]] = {
        Outcome.OUT_OF_MEMORY: NothingFits,
        Outcome.HOST_OUT_OF_MEMORY: NothingFits,
        Outcome.CRASHED: EnvironmentTrouble,
        Outcome.TIMED_OUT: EnvironmentTrouble,
        Outcome.UNSUPPORTED: UsageError,
    }
    if failure is None:
        return EnvironmentTrouble(f"{section}: the training at batch {size} ended without an answer")
    where = f", phase {failure.phase}" if failure.phase else ""
    hint = failure.hint or ("name a smaller one: --batch 1" if ended.outcome is Outcome.OUT_OF_MEMORY else "")
    return kinds.get(ended.outcome, WorkloadError)(
        f"training at batch {size} fails{where}: {failure.message}", hint=hint, detail=failure.traceback
    )


def whole(name: str, value: int | None) -> int | None:
    """The same; None = not given.

    Raises:
        UsageError: it is no whole number from 1 on.
    """
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= LARGEST):
        raise UsageError(f"{name} is {value!r}", hint=f"give {name} (--{name}) a whole number from 1 on")
    return value


def sections_of(only: Any) -> tuple[Section, ...]:
    """The sections that are asked for, in their order; all of those that there are where nothing is named.

    Raises:
        UsageError: one is not known.
    """
    from autotune.diagnose.evidence import EVIDENCE

    known = tuple(EVIDENCE)
    named = [only] if isinstance(only, str) else list(only or ())
    words = [word.strip() for text in named for word in str(text).split(",")]
    wrong = [word for word in words if word not in {str(one) for one in known}]
    if wrong:
        raise UsageError(f"section {wrong[0]!r} is not known", hint=f"use some of {','.join(known)}")
    return tuple(one for one in known if one in words) if words else known
