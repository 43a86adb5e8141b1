"""One diagnosis: at which size, through which sections, and what is left of it where some have no answer. Owned by ``api``."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from autotune.arguments import texts
from autotune.errors import AutotuneError, Interrupted, UsageError
from autotune.looking import Looker, make_folder
from autotune.model import (
    Budget,
    Findings,
    Machine,
    Plan,
    SearchRecord,
    Section,
    Settings,
    Unanswered,
    WorkloadInfo,
)
from autotune.probe.launcher import Launcher
from autotune.report.document import settings_of
from autotune.report.fields import Document
from autotune.units import LARGEST

SMALL = (2, 1, 8, 64)
"""Sizes that are tried one after the other where nothing is known: batch norm refuses one sample, others want multiples."""


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
        mine = record.workload.fingerprint == workload.fingerprint and not record.plan.predicted
        if answer is not None and mine:
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
    keep: Callable[[Findings], None],
) -> Findings:
    """Look at each section; see ``api.diagnose``.

    Args:
        launcher: of the workload.
        start: size and settings.
        sections: in turn; one that has no answer ends none of the others, unless it would end them all.
        workload: as it is.
        machine: where it runs.
        budget: the same for all sections.
        steps: to look at; None = as many as tell.
        output: folder for files; empty = none.
        say: is told what happens.
        keep: is given what was found after each section that answered; sections to come are among the unanswered.

    Raises:
        AutotuneError: of the first section without an answer, where none says anything of the training.
    """
    if Section.SNAPSHOT in sections and machine.device != "cpu" and output:
        make_folder(output)
    findings = Findings(
        workload=workload,
        machine=machine,
        budget=budget,
        batch_size=start.batches[0],
        batch_from=start.batch_from,
        settings=start.settings,
    )
    looker = Looker(launcher, findings, start.batches, steps=steps, output=output, say=say)
    unanswered: list[Unanswered] = []
    first: AutotuneError | None = None
    for number, section in enumerate(sections, 1):
        ended = looker.look(section)
        to_come = sections[number:]
        if ended is not None:
            first = first or ended.error
            unanswered.append(_because(ended.error, section))
            if ended.of_all:
                unanswered += [_because(ended.error, other, f"not looked at, as {section} ended") for other in to_come]
                break
        if not looker.findings.empty:
            stopped = [_because(Interrupted("stopped"), other, "not looked at") for other in to_come]
            keep(replace(looker.findings, unanswered=(*unanswered, *stopped)))
    if first is not None and looker.findings.empty:
        raise first
    return replace(looker.findings, unanswered=tuple(unanswered))


def _because(error: AutotuneError, section: Section, message: str = "") -> Unanswered:
    """Why a section has no answer: the error by itself, or another message about its kind."""
    return Unanswered(
        section=section,
        kind=error.kind,
        exit_code=error.exit_code,
        message=message or error.message,
        hint="" if message else error.hint,
        detail="" if message else error.detail,
    )


def sections_of(only: Any) -> tuple[Section, ...]:
    """The sections that are asked for, in their order; all of those that there are where nothing is named.

    Raises:
        UsageError: one is not known.
    """
    from autotune.diagnose.evidence import EVIDENCE

    known = (*EVIDENCE, Section.ADVICE)
    named = (only,) if isinstance(only, str) else texts("only", () if only is None else only)
    words = [word.strip() for text in named for word in text.split(",")]
    wrong = [word for word in words if word not in {str(one) for one in known}]
    if wrong:
        raise UsageError(f"section {wrong[0]!r} is not known", hint=f"use some of {','.join(known)}")
    return tuple(one for one in known if one in words) if words else known
