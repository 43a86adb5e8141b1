"""What a settings search was asked for."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from autotune.knobs import Space
from autotune.model import Objective, ProbeResult, Settings
from autotune.search.allocators import BestAllocator
from autotune.search.apart import plain
from autotune.search.batch import LARGEST_SIZE, BatchFinder


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The whole of it."""

    finder: BatchFinder | BestAllocator
    """How the limit of some settings is found."""
    space: Space
    objective: Objective
    share: int | None
    """Samples an optimizer step is to see on one device; None = as the user's own settings make it."""
    trials: int
    seed: int
    time_budget_s: float | None
    compile_share: float
    gone_s: Callable[[Sequence[ProbeResult]], float]
    compares: bool
    """Whether candidates can be shown to train the same as the user's own settings; else that is taken for granted."""

    @property
    def base(self) -> Settings:
        """The user's own settings, accumulation left aside."""
        return plain(self.space.base)

    @property
    def batch_finder(self) -> BatchFinder:
        """Under one configuration of the allocator."""
        return self.finder.finder if isinstance(self.finder, BestAllocator) else self.finder

    @property
    def bound(self) -> int:
        """The largest size allowed."""
        finder = self.batch_finder
        return min(n for n in (finder.max_batch, finder.data_set_size, LARGEST_SIZE) if n is not None)

    def knows(self, settings: Settings) -> bool:
        """Whether the settings are in the space, or the user's own; with any accumulation."""
        return plain(settings) == self.base or not self.space.refuses(plain(settings))

    def concerns(self, probe: ProbeResult) -> bool:
        """Whether the search may have asked for the probe; one of another space, or with other bounds, may have left some."""
        finder, settings = self.batch_finder, probe.settings
        if isinstance(self.finder, BestAllocator) and settings.allocator in self.finder.others:
            settings = replace(settings, allocator=self.base.allocator)
        legal = probe.batch_size % finder.multiple_of == 0 and probe.batch_size <= self.bound
        return legal and (self.knows(probe.settings) or self.knows(settings))
