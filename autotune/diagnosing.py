"""One diagnosis: which size is trained, each section in a process of its own, and what becomes of its end. Owned by ``api``."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autotune.diagnose.fragmentation.judge import judge_fragmentation
from autotune.diagnose.leaks.judge import judge_leaks
from autotune.errors import AutotuneError, EnvironmentTrouble, NothingFits, UsageError, WorkloadError
from autotune.model import (
    NO_CUDA,
    NO_FOLDER,
    NO_POOL,
    Budget,
    Findings,
    FragmentEvidence,
    Machine,
    Outcome,
    Plan,
    SearchRecord,
    Section,
    Settings,
    Snapshots,
    WorkloadInfo,
)
from autotune.probe.launcher import Examined, Launcher
from autotune.report.document import settings_of
from autotune.report.fields import Document
from autotune.units import LARGEST
from autotune.verifying import Adviser, verify_remedies

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
    died: NothingFits | None = None
    for section in sections:
        if section is Section.ADVICE:
            findings = _advised(findings, sizes, Adviser(launcher, workload, machine, budget, say))
            continue
        told = _told_at_once(findings, section, output)
        if told is not None:
            findings = told
            continue
        say(f"{section}: training at batch {sizes[0]} ...")
        ended = launcher.examine(section, sizes[0], start.settings, budget, steps=steps, output=output)
        first = ended
        while len(sizes) > 1 and ended.outcome in _OF_SIZE and _step_of(ended) <= 1:
            del sizes[0]
            ended = launcher.examine(section, sizes[0], start.settings, budget, steps=steps, output=output)
        if ended.outcome in _OF_SIZE:
            ended = first  # no size trains: the first one says best why
        sizes = sizes[:1]
        findings = replace(findings, batch_size=sizes[0])
        try:
            findings = _with(findings, section, ended)
        except NothingFits as error:
            died = died or error
            findings = replace(findings, unanswered=(*findings.unanswered, f"{section}: {error.message}"))
        if findings.fragmentation is not None and section is Section.FRAGMENTATION:
            verified = verify_remedies(
                launcher, findings.fragmentation, sizes[0], start.settings, budget, steps=steps, say=say
            )
            findings = replace(findings, fragmentation=verified)
    if died is not None and not _tells_of_death(findings):
        raise died
    return findings


def _advised(findings: Findings, sizes: Sequence[int], adviser: Adviser) -> Findings:
    """With advice for the first of the sizes that trains.

    Raises:
        AutotuneError: none of them does, told of the first.
    """
    first: WorkloadError | None = None
    for size in sizes:
        try:
            advised = adviser.advise(size, findings.settings, findings.peak, findings.fragmentation)
        except WorkloadError as error:
            first = first or error
        else:
            return replace(findings, batch_size=size, advised=advised)
    assert first is not None
    raise first


def _told_at_once(findings: Findings, section: Section, output: str) -> Findings | None:
    """With what needs no process to be said; None where one is needed.

    Raises:
        UsageError: the folder for the files cannot be made.
    """
    on_cpu = findings.machine.device == "cpu"
    if section is Section.FRAGMENTATION and on_cpu:
        nothing = FragmentEvidence(note=NO_POOL)
        return replace(findings, fragmentation=judge_fragmentation(nothing, Outcome.FITS, None))
    if section is Section.SNAPSHOT and (on_cpu or not output):
        return replace(findings, snapshots=Snapshots(note=NO_CUDA if on_cpu else NO_FOLDER))
    if section is Section.SNAPSHOT:
        try:
            Path(output).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"no folder can be made at {output}: {error.strerror}", hint="name another one: --output DIR"
            ) from error
    return None


def _tells_of_death(findings: Findings) -> bool:
    """Whether more is said of a training that does not fit than that it does not."""
    pieces, files, advised = findings.fragmentation, findings.snapshots, findings.advised
    return bool(
        (pieces is not None and pieces.evidence.at_failure is not None)
        or (files is not None and files.out_of_memory)
        or (advised is not None and any(one.survives for one in advised.advice))
    )


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
    if section is Section.COMPOSITION:
        if ended.seen is None or ended.seen.peak is None:
            raise _trouble(findings, section, ended)
        return replace(findings, peak=ended.seen.peak)
    if section is Section.FRAGMENTATION:
        if ended.seen is None or ended.outcome not in (Outcome.FITS, Outcome.OUT_OF_MEMORY):
            raise _trouble(findings, section, ended)
        return replace(findings, fragmentation=judge_fragmentation(ended.seen, ended.outcome, ended.failure))
    assert section is Section.SNAPSHOT
    if ended.seen is None or (ended.failure is not None and not ended.seen.out_of_memory):
        raise _trouble(findings, section, ended)
    return replace(findings, snapshots=ended.seen)


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

    known = (*EVIDENCE, Section.ADVICE)
    named = [only] if isinstance(only, str) else list(only or ())
    words = [word.strip() for text in named for word in str(text).split(",")]
    wrong = [word for word in words if word not in {str(one) for one in known}]
    if wrong:
        raise UsageError(f"section {wrong[0]!r} is not known", hint=f"use some of {','.join(known)}")
    return tuple(one for one in known if one in words) if words else known
