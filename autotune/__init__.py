"""autotune: the largest safe training batch of a PyTorch model, by isolated probes of your own code."""

import typing

from autotune.api import MaxBatch, check, find_max_batch
from autotune.errors import (
    AutotuneError,
    CheckFailed,
    EnvironmentTrouble,
    NothingFits,
    StaleConfig,
    StaleConfigError,
    StoreError,
    TimeRanOut,
    UsageError,
    WorkloadError,
)

if typing.TYPE_CHECKING:
    from autotune.tuned import Tuned, load
else:

    def __getattr__(name: str) -> object:
        """``load`` and ``Tuned`` come with torch, which importing autotune must not cost."""
        if name not in ("Tuned", "load"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        import autotune.tuned

        return getattr(autotune.tuned, name)


__all__ = [
    "AutotuneError",
    "CheckFailed",
    "EnvironmentTrouble",
    "MaxBatch",
    "NothingFits",
    "StaleConfig",
    "StaleConfigError",
    "StoreError",
    "TimeRanOut",
    "Tuned",
    "UsageError",
    "WorkloadError",
    "check",
    "find_max_batch",
    "load",
]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
