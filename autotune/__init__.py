"""autotune: the largest safe training batch of a PyTorch model, by isolated probes of your own code."""

import typing

from autotune.api import check, find_max_batch
from autotune.errors import (
    AutotuneError,
    CheckFailed,
    EnvironmentTrouble,
    MemoryStop,
    MemoryWarning,
    NothingFits,
    StaleConfig,
    StaleConfigError,
    StoreError,
    TimeRanOut,
    UsageError,
    WorkloadError,
)

if typing.TYPE_CHECKING:
    from autotune import runtime as runtime
    from autotune.api import MaxBatch
    from autotune.runtime import guard
    from autotune.tuned import Tuned, load
else:

    def __getattr__(name: str) -> object:
        """What comes with torch, or with all of the search, which importing autotune must not cost."""
        import importlib

        if name == "runtime":
            return importlib.import_module("autotune.runtime")
        homes = {
            "MaxBatch": "autotune.api",
            "Tuned": "autotune.tuned",
            "load": "autotune.tuned",
            "guard": "autotune.runtime",
        }
        if name not in homes:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(homes[name]), name)


__all__ = [
    "AutotuneError",
    "CheckFailed",
    "EnvironmentTrouble",
    "MaxBatch",
    "MemoryStop",
    "MemoryWarning",
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
    "guard",
    "load",
]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
