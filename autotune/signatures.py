"""The types in the signatures of ``api``. Each comes when it is first asked for.

With them ``typing.get_type_hints`` works on what is offered, and importing autotune costs nothing of what they are made of.
None of them brings torch or SQL; ``Checked`` brings pydantic, as it holds a recommendation.
"""

import typing

if typing.TYPE_CHECKING:
    from autotune.errors import AutotuneError
    from autotune.executors.asked import Where
    from autotune.front.max_batch import MaxBatch
    from autotune.front.observer import LogObserver
    from autotune.model import (
        Bucketed,
        Diagnosis,
        Explanation,
        Findings,
        KindFailed,
        Machine,
        Plan,
        Predicted,
        ProbeResult,
        SearchRecord,
        SearchResult,
        WorkloadInfo,
    )
    from autotune.planning import PlanOptions
    from autotune.ports import SearchObserver
    from autotune.recommended.checked import Checked
    from autotune.recommended.given import CheckOptions
    from autotune.report.page.view import View
else:
    _HOMES = {
        "AutotuneError": "autotune.errors",
        "CheckOptions": "autotune.recommended.given",
        "Checked": "autotune.recommended.checked",
        "LogObserver": "autotune.front.observer",
        "MaxBatch": "autotune.front.max_batch",
        "PlanOptions": "autotune.planning",
        "SearchObserver": "autotune.ports",
        "View": "autotune.report.page.view",
        "Where": "autotune.executors.asked",
    }
    """Type -> where it is defined; the nouns are those of ``autotune.model``."""

    def __getattr__(name: str) -> object:
        import importlib

        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(_HOMES.get(name, "autotune.model")), name)


__all__ = [
    "AutotuneError",
    "Bucketed",
    "CheckOptions",
    "Checked",
    "Diagnosis",
    "Explanation",
    "Findings",
    "KindFailed",
    "LogObserver",
    "Machine",
    "MaxBatch",
    "Plan",
    "PlanOptions",
    "Predicted",
    "ProbeResult",
    "SearchObserver",
    "SearchRecord",
    "SearchResult",
    "View",
    "Where",
    "WorkloadInfo",
]
