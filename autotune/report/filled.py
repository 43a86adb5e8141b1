"""Nouns as fields of documents."""

from typing import Any

from autotune.errors import AutotuneError
from autotune.model import SearchResult, Settings, WorkloadInfo
from autotune.report.fields import Error, Workload
from autotune.report.settings_fields import Settings as SettingsFields


def workload_fields(workload: WorkloadInfo) -> Workload:
    """What is trained."""
    return Workload(
        ref=workload.ref, fingerprint=workload.fingerprint, parameters=workload.parameters, parts=dict(workload.parts)
    )


def answer_fields(result: SearchResult | None) -> dict[str, Any]:
    """``max_batch``, ``refuted_at``, ``limited_by`` and ``search_id``; all null where there is no answer."""
    answer = result.answer if result else None
    return {
        "max_batch": answer.max_batch if answer else None,
        "refuted_at": answer.refuted_at if answer else None,
        "limited_by": answer.limited_by if answer else None,
        "search_id": result.search_id if result else None,
    }


def settings_fields(settings: Settings) -> SettingsFields:
    """All but accumulation, which documents keep with the batch."""
    return SettingsFields(**{name: getattr(settings, name) for name in SettingsFields.model_fields})


def error_fields(error: AutotuneError | None) -> Error | None:
    """Why there is no answer; None where there is one."""
    return None if error is None else Error(kind=error.kind, message=error.message, hint=error.hint)
