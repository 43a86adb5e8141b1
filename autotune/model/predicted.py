"""What several devices would need of a training, found out on one: predicted, and not run unless it says so."""

from dataclasses import dataclass

from autotune.errors import AutotuneError
from autotune.model.machine import Budget, Machine
from autotune.model.probe import ProbeResult
from autotune.model.search import Plan, SearchResult
from autotune.model.settings import Parallel
from autotune.model.workload import WorkloadInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Communicators:
    """What communicators between the ranks are taken to hold of each device, outside of PyTorch's allocator."""

    size_bytes: int
    told_by: str
    """Where the figure comes from, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedWay:
    """What came out for one way in which the ranks may train together."""

    parallel: Parallel
    result: SearchResult | None
    """The search in which one process stood in for all ranks; None where it has no answer."""
    error: AutotuneError | None = None
    """Why it has none."""
    enough: int | None = None
    """Where not even the smallest batch fits: a number of ranks with which it is predicted to; None = none was found, or
    more ranks share nothing more."""
    real: SearchResult | None = None
    """The search in which all ranks ran; None where they did not, or nothing fitted."""
    real_error: AutotuneError | None = None
    """Why they ran and have no answer."""

    @property
    def verified(self) -> bool:
        """Whether the ranks really ran."""
        return self.real is not None or self.real_error is not None

    @property
    def certificate(self) -> ProbeResult | None:
        """The probe at the predicted batch."""
        return None if self.result is None else self.result.certificate


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """What came out for all ways that were asked about."""

    plan: Plan
    workload: WorkloadInfo
    machine: Machine
    """The one device that stood in for all."""
    budget: Budget
    """Of each rank."""
    communicators: Communicators
    ways: tuple[PredictedWay, ...]

    @property
    def error(self) -> AutotuneError | None:
        """Why there is no answer at all; None where one way has one."""
        if any(way.result is not None for way in self.ways):
            return None
        return next((way.error for way in self.ways if way.error is not None), None)
