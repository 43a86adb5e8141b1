"""The answers of a search by length buckets."""

from dataclasses import dataclass

from autotune.errors import AutotuneError
from autotune.model.machine import Machine
from autotune.model.search import Plan, SearchResult
from autotune.model.workload import LengthBucket, WorkloadInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketResult:
    """What came out for one length bucket."""

    bucket: LengthBucket
    result: SearchResult | None
    """None where there is no such sample, or no answer."""
    error: AutotuneError | None = None
    """Why there is no answer; None where there is one, and where there is nothing to search."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucketed:
    """What came out for all of them, shortest first."""

    plan: Plan
    workload: WorkloadInfo
    machine: Machine
    rows: tuple[BucketResult, ...]

    @property
    def widest(self) -> SearchResult | None:
        """The answer of the longest bucket that has one. Its samples are those of the shorter ones as well."""
        return next((row.result for row in reversed(self.rows) if row.result is not None), None)

    @property
    def error(self) -> AutotuneError | None:
        """Why a bucket with samples has no answer: that of the shortest of them."""
        return next((row.error for row in self.rows if row.error is not None), None)
