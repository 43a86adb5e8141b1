"""The settings finder: the fastest settings that train the same and are safe, with their batch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from autotune.errors import UsageError
from autotune.knobs import Space
from autotune.model import Cause, Objective, Outcome, ProbeResult, Question, Reason, Stop
from autotune.search.allocators import BestAllocator
from autotune.search.batch import BatchFinder
from autotune.search.settings.asked import Asked
from autotune.search.settings.conclude import standing_answer
from autotune.search.settings.explore import explore
from autotune.search.settings.larger import grow
from autotune.search.settings.opening import open_search
from autotune.search.settings.sample import sample
from autotune.search.settings.saying import reason_of
from autotune.search.settings.settle import settle
from autotune.search.settings.sizes import share_of
from autotune.search.settings.spending import spent
from autotune.search.settings.view import View

_DISTURBED = 3
"""As many probes in a row that prove nothing: others use the device, and more of them would prove nothing either."""


@dataclass(frozen=True, kw_only=True)
class SettingsFinder:
    """A strategy that searches settings and batch together. A pure function of the history, so it resumes by being asked;
    under a time budget also of the time that is gone.

    Its course: the user's own settings (`opening`); what is known to pay, and single changes of the best (`explore`);
    combinations (`sample`); larger batches (`larger`); the winner, shown to train the same, certified (`settle`).

    Raises:
        UsageError: on construction, if the effective batch cannot be held exactly.
    """

    finder: BatchFinder | BestAllocator
    """How the limit of some settings is found; it has the user's own settings and the bounds."""
    space: Space
    objective: Objective = Objective.THROUGHPUT
    effective_batch: int | None = None
    """Samples of an optimizer step on all devices together, exactly; None = as the user's own settings make it."""
    world: int = 1
    """Devices that train together."""
    trials: int = 12
    """Settings that the sampler may propose at most."""
    seed: int = 0
    time_budget_s: float | None = None
    """Wall limit of the search, as far as it is known: the winner is certified before it is reached."""
    gone_s: Callable[[Sequence[ProbeResult]], float] = spent
    """How much of it is gone when so much is known. By itself the seconds of these probes; whoever knows more counts what
    runs beside and between them as well: evaluations, loaders, other workers, waiting."""
    compile_share: float = 0.5
    """Of the time budget that compiling may take; without one three pairs of settings and size may be compiled."""
    compares: bool = True
    """Whether a probe can show that settings train the same; a command of the user's cannot be asked for that."""

    def __post_init__(self) -> None:
        if self.trials < 0:
            raise UsageError(f"--trials is {self.trials}", hint="give 0 or more")
        if not 0 <= self.compile_share <= 1:
            raise UsageError(f"the share of compiling is {self.compile_share}", hint="give a number from 0 to 1")
        _ = self.asked

    def ask(self, history: Sequence[ProbeResult]) -> Question | Stop:
        """Return the next probe or stop; depends on nothing but the history."""
        view = View.of(self.asked, history)
        again = _again(view)
        if again is not None:
            return again
        opening = open_search(view)
        if opening is not None:
            return opening
        if not _disturbed(view) and any(view.goal.best(row) for row in view.table.alive):
            for stage in (explore, sample, grow):
                question = stage(view)
                if question is not None:
                    return question
        return settle(view)

    def conclude(self, history: Sequence[ProbeResult]) -> Stop | None:
        """The best answer that stands, for when time is out (``Answer.complete`` is False); None if nothing is certified."""
        view = View.of(self.asked, history)
        answer = standing_answer(view)
        return None if answer is None else Stop(reason=reason_of(view, answer), answer=answer)

    @cached_property
    def asked(self) -> Asked:
        """What it was asked for, as its decisions take it."""
        finder = self.finder.finder if isinstance(self.finder, BestAllocator) else self.finder
        return Asked(
            finder=self.finder,
            space=self.space,
            objective=self.objective,
            share=share_of(self.effective_batch, self.world, finder.multiple_of),
            trials=self.trials,
            seed=self.seed,
            time_budget_s=self.time_budget_s,
            compile_share=self.compile_share,
            gone_s=self.gone_s,
            compares=self.compares,
        )


def _again(view: View) -> Question | None:
    """A probe without a conclusion, whatever the settings: the same once more."""
    for row in view.table.rows.values():
        probe = row.open
        if probe is not None:
            return Question(batch_size=probe.batch_size, form=probe.form, reason=Reason.RETRY, settings=probe.settings)
    return None


def _disturbed(view: View) -> bool:
    last = view.history[-_DISTURBED:]
    return len(last) == _DISTURBED and all(
        p.outcome is Outcome.UNRELIABLE or (p.failure is not None and p.failure.cause is Cause.OTHERS) for p in last
    )
