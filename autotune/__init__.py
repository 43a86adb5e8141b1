"""autotune: the largest safe training batch of a PyTorch model, by isolated probes of your own code."""

from autotune.api import MaxBatch, find_max_batch
from autotune.errors import (
    AutotuneError,
    EnvironmentTrouble,
    NothingFits,
    StoreError,
    TimeRanOut,
    UsageError,
    WorkloadError,
)

__all__ = [
    "AutotuneError",
    "EnvironmentTrouble",
    "MaxBatch",
    "NothingFits",
    "StoreError",
    "TimeRanOut",
    "UsageError",
    "WorkloadError",
    "find_max_batch",
]
