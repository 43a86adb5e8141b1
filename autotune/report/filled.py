"""Nouns as fields of documents."""

from autotune.errors import AutotuneError
from autotune.model import Settings, WorkloadInfo
from autotune.report.fields import Error, Workload
from autotune.report.settings_fields import Settings as SettingsFields


def workload_fields(workload: WorkloadInfo) -> Workload:
    """What is trained."""
    return Workload(
        ref=workload.ref,
        fingerprint=workload.fingerprint,
        parameters=workload.parameters,
        parts=dict(workload.parts),
    )


def settings_fields(settings: Settings) -> SettingsFields:
    """All but accumulation, which documents keep with the batch."""
    return SettingsFields(**{name: getattr(settings, name) for name in SettingsFields.model_fields})


def error_fields(error: AutotuneError | None) -> Error | None:
    """Why there is no answer; None where there is one."""
    return None if error is None else Error(kind=error.kind, message=error.message, hint=error.hint)
