"""One training of a diagnosis, looked at section by section: which size trains, and what the end of each process means."""

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
    Findings,
    FragmentEvidence,
    Outcome,
    Section,
    Snapshots,
)
from autotune.probe.launcher import Examined, Launcher
from autotune.verifying import Adviser, training_error, verify_remedies

_OF_SIZE = (Outcome.SIZE_LIMIT, Outcome.WORKLOAD_ERROR)
"""Ends of a first step that another size may not have."""


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """Why a section says nothing, or not all."""

    error: AutotuneError
    of_all: bool
    """The other sections would end like it."""


class Looker:
    """Looks at one section after the other; ``findings`` has what they said."""

    def __init__(
        self,
        launcher: Launcher,
        findings: Findings,
        sizes: Sequence[int],
        *,
        steps: int | None,
        output: str,
        say: Callable[[str], None],
    ) -> None:
        """
        Args:
            launcher: of the workload.
            findings: what is known before: workload, machine, budget, settings.
            sizes: to be tried in turn; the first that trains is looked at.
            steps: to look at; None = as many as tell.
            output: folder for files; empty = none.
            say: is told what happens.
        """
        self.findings = findings
        self._launcher = launcher
        self._sizes = list(sizes)
        self._steps = steps
        self._output = output
        self._say = say

    def look(self, section: Section) -> NoAnswer | None:
        """Add what a section says to ``findings``; returns why it has no answer, None if it has."""
        try:
            if section is Section.ADVICE:
                self._advise()
                return None
            said = _needs_no_process(section, self.findings.machine.device, self._output)
            if said:
                self.findings = replace(self.findings, **said)
                return None
            ended = self._examine(section)
            said = _answer(section, ended)
            self.findings = replace(self.findings, **said)
            if section is Section.FRAGMENTATION and said:
                self._verify()
        except AutotuneError as trouble:  # no process could be run, or it refused its order
            return NoAnswer(trouble, of_all=True)
        if said and _explained(section, ended):
            return None
        failure, unwritten = ended.failure, _unwritten(section, ended)
        if unwritten and failure is None:
            hint = "make room there, or name a folder on another disk: --output DIR"
            return NoAnswer(EnvironmentTrouble(unwritten, hint=hint), of_all=False)
        if unwritten and failure is not None:
            failure = replace(failure, message=f"{failure.message}; {unwritten}")
        error = training_error(section, self.findings.batch_size, ended.outcome, failure)
        # Where memory ran out in the first step, others tell more of that.
        of_all = self.findings.empty and _step_of(ended) <= 1 and not isinstance(error, NothingFits)
        return NoAnswer(error, of_all=of_all)

    def _examine(self, section: Section) -> Examined:
        """How a training at the first of the sizes that trains ended; at the very first where none does."""
        sizes, tried = self._sizes, dict[int, Examined]()
        while True:
            self._say(f"{section}: training at batch {sizes[0]} ...")
            ended = tried[sizes[0]] = self._launcher.examine(
                section,
                sizes[0],
                self.findings.settings,
                self.findings.budget,
                steps=self._steps,
                output=self._output,
            )
            if len(sizes) == 1 or ended.outcome not in _OF_SIZE or _step_of(ended) > 1:
                break
            del sizes[0]
        del sizes[1:]
        # Where no size trains, the first one says best why.
        size = next(iter(tried)) if ended.outcome in _OF_SIZE else sizes[0]
        self.findings = replace(self.findings, batch_size=size)
        return tried[size]

    def _verify(self) -> None:
        """See which setting of the allocator helps, if memory lies in pieces."""
        found = self.findings
        assert found.fragmentation is not None
        verified = verify_remedies(
            self._launcher,
            found.fragmentation,
            found.batch_size,
            found.settings,
            found.budget,
            steps=self._steps,
            say=self._say,
        )
        self.findings = replace(found, fragmentation=verified)

    def _advise(self) -> None:
        """Advice for the first of the sizes that trains.

        Raises:
            AutotuneError: none of them does, told of the first.
        """
        found = self.findings
        adviser = Adviser(self._launcher, found.workload, found.machine, found.budget, self._say)
        first: WorkloadError | None = None
        for size in self._sizes:
            try:
                advised = adviser.advise(size, found.settings, found.peak, found.fragmentation)
            except WorkloadError as error:
                first = first or error
            else:
                self.findings = replace(found, batch_size=size, advised=advised)
                return
        assert first is not None
        raise first


def make_folder(path: str) -> None:
    """For the files of ``snapshot``.

    Raises:
        UsageError: it cannot be made.
    """
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"no folder can be made at {path}: {error.strerror}", hint="name another one: --output DIR"
        ) from error


def _needs_no_process(section: Section, device: str, output: str) -> dict[str, Any]:
    """What is said of a section for which there is nothing to train here; empty where there is."""
    on_cpu = device == "cpu"
    if section is Section.FRAGMENTATION and on_cpu:
        return {"fragmentation": judge_fragmentation(FragmentEvidence(note=NO_POOL), Outcome.FITS, None)}
    if section is Section.SNAPSHOT and (on_cpu or not output):
        return {"snapshots": Snapshots(note=NO_CUDA if on_cpu else NO_FOLDER)}
    return {}


def _explained(section: Section, ended: Examined) -> bool:
    """Whether the end of the process is no trouble: nothing failed, or memory ran out and the section tells of that."""
    died = ended.outcome in (Outcome.OUT_OF_MEMORY, Outcome.HOST_OUT_OF_MEMORY)
    match section:
        case _ if ended.failure is None:
            return ended.seen is not None and not _unwritten(section, ended)
        case Section.LEAKS:
            return died and _step_of(ended) > 1
        case Section.COMPOSITION:
            return died  # the profile that comes last needs memory of its own
        case Section.FRAGMENTATION:
            return ended.outcome is Outcome.OUT_OF_MEMORY
        case _:
            return ended.seen is not None and bool(ended.seen.out_of_memory)


def _unwritten(section: Section, ended: Examined) -> str:
    """The file of a snapshot that the disk did not take, and why; empty where there is none."""
    return str(ended.seen.unwritten) if section is Section.SNAPSHOT and ended.seen is not None else ""


def _answer(section: Section, ended: Examined) -> dict[str, Any]:
    """What a section says of what its process saw; empty where that is nothing."""
    seen, explained = ended.seen, _explained(section, ended)
    if seen is None:
        return {}
    match section:
        case Section.LEAKS:
            return {"leaks": judge_leaks(seen, ended.failure)} if explained else {}
        case Section.COMPOSITION:
            return {"peak": seen.peak} if seen.peak is not None else {}
        case Section.FRAGMENTATION:
            return {"fragmentation": judge_fragmentation(seen, ended.outcome, ended.failure)} if explained else {}
        case _:
            return {"snapshots": seen} if explained or seen.peak else {}


def _step_of(ended: Examined) -> int:
    return (ended.failure.step if ended.failure else None) or 0
