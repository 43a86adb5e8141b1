"""Which strategy a search asks: composed of plan, workload, machine, budget and what was measured before."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autotune.model import Budget, Machine, Plan, ProbeResult, WorkloadInfo
from autotune.ports import Strategy
from autotune.units import MIB

if TYPE_CHECKING:
    from autotune.search.allocators import BestAllocator
    from autotune.search.loading import Finder

CPU_NOISE_BYTES = 2 * MIB
"""The peak of the same steps differs by this much from run to run where the kernel counts it (see ``probe.meter``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Composer:
    """Of one search."""

    plan: Plan
    """With the workload's own settings."""
    workload: WorkloadInfo
    machine: Machine
    budget: Budget
    elapsed_s: Callable[[], float]
    """Wall time of the command so far, which is of its time budget."""
    guess: int | None = None
    """Size to begin with, whatever the plan says; None = as the plan says."""

    def strategy(self, history: Sequence[ProbeResult]) -> Strategy:
        """What looks for training's answer, and for evaluation's where there is one."""
        if not self.workload.evaluates:
            return self._of_training(history)
        from autotune.search.apart import Apart
        from autotune.search.evaluation import EvaluationFinder

        return EvaluationFinder(
            finder=self._of_training(Apart.of(history).training),
            asked=self.plan.eval_batch,
            multiple_of=self.plan.multiple_of,
            noise_bytes=CPU_NOISE_BYTES if self.machine.device == "cpu" else 0,
        )

    def _of_training(self, history: Sequence[ProbeResult]) -> "Finder":
        from autotune.search.allocators import BestAllocator
        from autotune.search.batch import BatchFinder
        from autotune.search.loading import LoadingFinder

        device = self.machine.device
        finder = BatchFinder(
            multiple_of=self.plan.multiple_of,
            start_batch=self.plan.start_batch if self.guess is None else self.guess,
            max_batch=self.plan.max_batch,
            data_set_size=self.workload.data_set_size,
            recommend=self.plan.recommend,
            # a command trains at one size, and of some loaders nothing says how batches follow the size
            # and what several ranks hold beside a recording's own events nothing replays yet
            trace=device == "cuda"
            and self.workload.sized
            and not self.plan.source.command
            and (self.plan.ranks == 1 or self.plan.predicted),
            settings=self.plan.settings,
            varies=self.workload.varies,
            noise_bytes=CPU_NOISE_BYTES if device == "cpu" else 0,
            shown=f"predicted for {self.plan.ranks} ranks (not run)" if self.plan.predicted else "certified",
        )
        plan, best = self.plan, BestAllocator(finder, self.plan.other_allocators if device == "cuda" else ())
        if not plan.space and plan.effective_batch is None:
            return self._with_own_loader(self._in_time(best))
        from autotune.knobs import space_of
        from autotune.search.settings import SettingsFinder, spent

        before_s = spent(history)  # by earlier commands, which had budgets of their own
        space = space_of(plan, self.workload, self.machine)
        settings_finder = SettingsFinder(
            finder=best,
            space=space,
            objective=plan.objective,
            effective_batch=plan.effective_batch,
            world=plan.replicas,
            trials=plan.trials,
            seed=plan.seed,
            time_budget_s=None if plan.time_budget_s is None else before_s + plan.time_budget_s,
            gone_s=lambda known: before_s + self._gone_s(known),
            compares=not plan.source.command,
        )
        if "loader_workers" not in space.loading_knobs:
            return self._with_own_loader(settings_finder)
        own = self.workload.loader.workers if self.workload.loader is not None else 0
        tried = sorted({0, own, *(n for n in space.values("loader_workers") if isinstance(n, int))})
        return LoadingFinder(
            finder=settings_finder,
            workers=tuple(tried),
            pin_memory=device == "cuda",
            host_bytes=self._host_bytes,
        )

    def _in_time(self, finder: "BestAllocator") -> "Finder":
        """The same, with an eye on the time budget, if there is one; where the limit alone is wanted, less is no answer."""
        from autotune.search.in_time import InTime

        if self.plan.time_budget_s is None or not self.plan.recommend:
            return finder
        return InTime(
            finder=finder,
            time_budget_s=self.plan.time_budget_s,
            gone_s=self._gone_s,
            varies=self.workload.varies,
        )

    def _gone_s(self, known: Sequence[ProbeResult]) -> float:
        """Seconds of the time budget that are gone once these are known, some of which may be imagined."""
        from autotune.search.imagine import still_to_come_s

        return self.elapsed_s() + still_to_come_s(known)

    def _with_own_loader(self, finder: "Finder") -> "Finder":
        """The same, and whether the user's own loader runs with its workers, if it has any."""
        from autotune.search.loading import OwnLoaderFinder

        loader = self.workload.loader
        if loader is None or not loader.workers:
            return finder
        return OwnLoaderFinder(
            finder=finder,
            workers=loader.workers,
            pin_memory=loader.pin_memory,
            host_bytes=self._host_bytes,
        )

    @property
    def _host_bytes(self) -> int | None:
        """Where the host's memory is the device's, workers and training share the budget."""
        return self.budget.limit_bytes if self.machine.device == "cpu" else None
