"""The probes of a diagnosis: a change is tried on the training in a fresh process before anything is said of it."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from autotune.diagnose.advising import (
    COMPARED,
    change_of,
    changes,
    estimates,
    judge_change,
    of_fragmentation,
    peak_of,
    ranked,
)
from autotune.diagnose.fragmentation.candidates import candidates
from autotune.diagnose.fragmentation.judge import judge_remedy
from autotune.diagnose.fragmentation.judge import ranked as ranked_remedies
from autotune.errors import AutotuneError, EnvironmentTrouble, NothingFits, UsageError, WorkloadError
from autotune.memory.allocator_config import Unreplayable
from autotune.model import (
    ALLOCATOR_VARIABLES,
    Advice,
    Advised,
    Budget,
    Cause,
    Failure,
    Form,
    Fragmentation,
    FragmentEvidence,
    Machine,
    Outcome,
    Peak,
    ProbeResult,
    Question,
    Reason,
    Remedy,
    Section,
    Settings,
    WorkloadInfo,
)
from autotune.ports import Prober
from autotune.probe.launcher import Launcher


def verify_remedies(
    launcher: Launcher,
    found: Fragmentation,
    batch_size: int,
    settings: Settings,
    budget: Budget,
    *,
    steps: int | None,
    say: Callable[[str], None],
) -> Fragmentation:
    """Run the same training again under each allocator configuration that may help, in a fresh process each.

    Args:
        launcher: of the workload.
        found: where it is not flagged, nothing is run.
        batch_size: as it was looked at.
        settings: as it was looked at.
        budget: the same.
        steps: the same.
        say: is told what happens.
    """
    if not found.flagged:
        return found
    tried = []
    for allocator in _candidates(found, settings):
        say(f"fragmentation: trying {allocator} ...")
        changed = replace(settings, allocator=allocator)
        try:
            ended = launcher.examine(Section.FRAGMENTATION, batch_size, changed, budget, steps=steps, output="")
        except EnvironmentTrouble as error:  # the platform does not have it: PyTorch said so, or ignored it
            tried.append(Remedy(allocator=allocator, helps=False, outcome=Outcome.UNSUPPORTED, why_not=error.message))
            continue
        seen = ended.seen if isinstance(ended.seen, FragmentEvidence) else FragmentEvidence()
        tried.append(judge_remedy(allocator, found, seen, ended.outcome))
    return replace(found, remedies=ranked_remedies(tried))


def _candidates(found: Fragmentation, settings: Settings) -> tuple[str, ...]:
    """Beside what the settings or the user's environment say already."""
    now = settings.allocator or _in_environment()
    asked = [found.evidence.requested_bytes, *(squeeze.requested_bytes for squeeze in found.evidence.squeezes)]
    try:
        return candidates(now, max((size for size in asked if size is not None), default=None))
    except Unreplayable:  # written in a way that PyTorch may understand and we do not: it cannot be added to
        return ()


def _in_environment() -> str:
    """What the user's environment says of the allocator; probes inherit it where their settings say nothing."""
    return next((os.environ[name] for name in ALLOCATOR_VARIABLES if os.environ.get(name)), "")


class Adviser:
    """Measures what may be changed of one training."""

    def __init__(
        self, prober: Prober, workload: WorkloadInfo, machine: Machine, budget: Budget, say: Callable[[str], None]
    ) -> None:
        self._prober = prober
        self._workload = workload
        self._machine = machine
        self._budget = budget
        self._say = say
        self._reserve_bytes = 0

    def advise(
        self, batch_size: int, settings: Settings, peak: Peak | None, pieces: Fragmentation | None = None
    ) -> Advised:
        """Probe the training as it is, and with each change that may save memory.

        Args:
            batch_size: that is looked at.
            settings: that it runs with.
            peak: taken apart, if it was.
            pieces: whether memory is fragmented, if that was looked at.

        Raises:
            AutotuneError: the training as it is fails for another reason than memory.
        """
        base = self._probe("the training as it is", batch_size, settings, Reason.BASELINE)
        if base.outcome not in _OF_MEMORY:
            raise training_error(Section.ADVICE, batch_size, base.outcome, base.failure)
        if base.failure is not None and base.failure.cause is Cause.GROWTH:
            why = "nothing was tried: memory grows from step to step, and no setting cures that"
            return Advised(peak_bytes=None, without=(why,))
        tried, why_not = changes(settings, self._workload.traits, self._machine.device)
        said = tuple(self._as_far_as_it_goes(tried, base, settings))
        return Advised(
            peak_bytes=peak_of(base),
            advice=ranked(
                [
                    *(one for one in said if isinstance(one, Advice)),
                    *of_fragmentation(pieces),
                    *estimates(self._workload, peak),
                ]
            ),
            without=(*(one for one in said if isinstance(one, str)), *why_not),
        )

    def _as_far_as_it_goes(
        self, tried: Sequence[Settings], base: ProbeResult, settings: Settings
    ) -> Iterator[Advice | str]:
        """What comes out of each change, until no more probes can be run: what was measured before stands."""
        try:
            yield from self._outcomes(tried, base, settings)
        except EnvironmentTrouble as error:
            yield f"nothing further was tried: {error.message}"

    def _outcomes(self, tried: Sequence[Settings], base: ProbeResult, settings: Settings) -> Iterator[Advice | str]:
        """What comes out of each change, and of half the batch, one by one; words where it is no advice.

        Raises:
            EnvironmentTrouble: no more probes can be run.
        """
        batch_size = base.batch_size
        for changed in tried:
            change, does = change_of(changed, settings)
            if changed.allocator != settings.allocator and not settings.allocator and _in_environment():
                yield f"{change}: the environment configures the allocator"
                continue
            try:
                probe = self._probe(change, batch_size, changed, Reason.CHANGE)
            except EnvironmentTrouble as error:
                if changed.allocator == settings.allocator:
                    raise
                yield f"{change}: {error.message}"  # the platform does not have it
                continue
            judged = judge_change(change, does, base, probe, self._machine.device)
            if isinstance(judged, Advice) and change.partition("=")[0] in COMPARED:
                judged = self._compared(judged, batch_size, settings, changed)
            yield judged
        smaller = batch_size // 2
        if smaller:
            change, does = f"batch {smaller} instead of {batch_size}", "accumulation would keep the effective batch"
            probe = self._probe(change, smaller, settings, Reason.SHRINK)
            yield judge_change(change, does, base, probe, self._machine.device)

    def _probe(self, what: str, batch_size: int, settings: Settings, reason: Reason) -> ProbeResult:
        self._say(f"advice: a probe of {what} ...")
        question = Question(batch_size=batch_size, form=Form.TIMED, reason=reason, settings=settings)
        result = self._prober.probe(question, self._budget, self._reserve_bytes)
        self._reserve_bytes = max(self._reserve_bytes, result.measurement.non_pytorch_bytes or 0)
        return result

    def _compared(self, advice: Advice, batch_size: int, base: Settings, changed: Settings) -> Advice | str:
        """The advice, unless the change trains something else."""
        size = _compared_size(batch_size)
        question = Question(
            batch_size=size,
            form=Form.COMPARE,
            reason=Reason.COMPARE,
            settings=changed,
            reference=base,
        )
        seen = self._prober.probe(question, self._budget, self._reserve_bytes)
        if seen.outcome is Outcome.CHANGES_TRAINING and seen.failure is not None:
            return f"{advice.change}: it changes the training ({seen.failure.message.splitlines()[0]})"
        if not seen.fits:
            return f"{advice.change}: whether it trains the same could not be shown ({seen.outcome.value})"
        return replace(advice, source=f"{advice.source}; compared on three steps at batch {size}, it trains the same")


def _compared_size(batch_size: int) -> int:
    """Of eight samples or fewer: enough to compare on, since two models are there at once. A divisor where there is one that
    is not too small: the training may take multiples of some number alone."""
    return next((size for size in (8, 7, 6, 5, 4) if batch_size % size == 0), min(8, batch_size))


_OF_MEMORY = (Outcome.FITS, Outcome.UNSAFE, Outcome.OUT_OF_MEMORY, Outcome.HOST_OUT_OF_MEMORY)


_KINDS: dict[Outcome, type[AutotuneError]] = {
    Outcome.OUT_OF_MEMORY: NothingFits,
    Outcome.HOST_OUT_OF_MEMORY: NothingFits,
    Outcome.CRASHED: EnvironmentTrouble,
    Outcome.TIMED_OUT: EnvironmentTrouble,
    Outcome.UNRELIABLE: EnvironmentTrouble,
    Outcome.UNSUPPORTED: UsageError,
}
"""What is in the way where a training ended so; else it fails by itself."""


def training_error(section: Section, batch_size: int, outcome: Outcome, failure: Failure | None) -> AutotuneError:
    """Why a section has no answer, by how its training ended."""
    if failure is None:
        return EnvironmentTrouble(f"the training at batch {batch_size} ended without an answer for {section}")
    where = f", phase {failure.phase}" if failure.phase else ""
    hint = failure.hint or ("name a smaller one: --batch 1" if outcome is Outcome.OUT_OF_MEMORY else "")
    return _KINDS.get(outcome, WorkloadError)(
        f"training at batch {batch_size} fails{where}: {failure.message}", hint=hint, detail=failure.traceback
    )
