"""The recommendation as a file: a result becomes ``autotune.json``, a text becomes a checked document, the schema."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import datetime
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from autotune.errors import AutotuneError, UsageError
from autotune.knobs import in_words
from autotune.model import (
    Answer,
    Bucketed,
    BucketResult,
    Machine,
    Outcome,
    ProbeResult,
    SearchResult,
    Settings,
    WorkloadInfo,
)
from autotune.report.advice import advice
from autotune.report.asked import asked_fields, settings_of
from autotune.report.baseline import baseline, is_own, throughput
from autotune.report.buckets import bucket_advice
from autotune.report.commands import launch, training_command
from autotune.report.evaluated import evaluation_failure
from autotune.report.evidence import certificate
from autotune.report.fields import Batch, Check, Document, Error, Evidence, FailureDocument, LengthBucket, NoBatch
from autotune.report.fields import Evaluation as EvaluationFields
from autotune.report.fields import Machine as MachineFields
from autotune.report.fields import Prediction as PredictionFields
from autotune.report.fields import Rank as RankFields
from autotune.report.fields import Workload as WorkloadFields
from autotune.report.filled import answer_fields, error_fields, settings_fields, workload_fields
from autotune.report.prediction_fields import PredictionDocument
from autotune.report.ranks import of_all_ranks

__all__ = ["document", "failure_document", "prediction_schema", "read", "schema", "settings_of", "to_text"]

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_SCHEMA_VERSION: Literal[1] = 1
_MOST, _LONGEST = 30, 300
"""Bad fields that are listed, and characters said of each: the file may be anybody's."""
_EXHAUSTED = frozenset({Outcome.OUT_OF_MEMORY, Outcome.HOST_OUT_OF_MEMORY})


def document(result: SearchResult) -> Document:
    """The recommendation a search makes that has certified a batch.

    Raises:
        UsageError: it is a prediction, in which the ranks did not run.
    """
    if result.plan.predicted:
        raise UsageError(
            f"search {result.search_id} predicted what {result.plan.ranks} ranks need, and they did not run: there is nothing"
            " to recommend",
            hint=f"search where the devices are: autotune search {result.workload.ref} --ranks {result.plan.ranks}",
        )
    answer, settings, plan = result.answer, result.settings, result.plan
    proof = certificate(result, answer.recommended_batch) or result.certificate
    rate = throughput(result)
    return Document(
        schema_version=_SCHEMA_VERSION,
        created=result.created,
        complete=answer.complete,
        workload=workload_fields(result.workload).model_copy(update={"command": training_command(result)}),
        machine=MachineFields(**asdict(result.machine)),
        settings=settings_fields(_with_loading(settings, answer)),
        changes=in_words(settings, result.plan.settings),
        batch=Batch(
            micro_batch=answer.recommended_batch,
            accumulate=settings.accumulate,
            world=plan.world,
            replicas=None if plan.replicas == plan.world else plan.replicas,
            ranks=plan.ranks,
            effective=answer.recommended_batch * settings.accumulate * plan.replicas,
            max_batch=answer.max_batch,
            refuted_at=answer.refuted_at,
        ),
        evaluation=_evaluation(result),
        environment=settings.environment,
        launch=launch(result.plan),
        evidence=Evidence(
            samples_per_second=rate,
            baseline_samples_per_second=rate if is_own(result) else _rate(baseline(result)),
            peak_bytes=proof.measurement.peak_device_bytes,
            budget_bytes=result.budget.limit_bytes,
            headroom_bytes=result.budget.headroom_bytes,
            steps=proof.measurement.steps_executed,
            probes=len(result.probes),
            out_of_memory_probes=sum(p.outcome in _EXHAUSTED for p in result.probes),
            seconds=result.seconds,
            loading_samples_per_second=answer.loading.samples_per_second if answer.loading else None,
            worst_batch=proof.measurement.worst_batch or None,
            ranks=tuple(
                RankFields(
                    rank=one.rank,
                    peak_bytes=one.peak_device_bytes,
                    non_pytorch_bytes=one.non_pytorch_bytes,
                    steps=one.steps_executed,
                )
                for one in proof.ranks
            ),
            all_ranks_samples_per_second=of_all_ranks(rate, plan, settings),
            candidates=proof.measurement.candidates,
            prediction=PredictionFields(**asdict(answer.prediction)) if answer.prediction else None,
        ),
        search_id=result.search_id,
        limited_by=answer.limited_by,
        warnings=advice(result),
        asked=asked_fields(result),
    )


def bucket_document(found: Bucketed) -> Document:
    """That of the longest length bucket that has an answer, with those of all of them.

    Args:
        found: without a bucket that has samples and no answer.
    """
    assert found.widest is not None, "nothing was found"
    whole = document(found.widest)
    return whole.model_copy(update={"buckets": bucket_fields(found), "warnings": bucket_advice(found)})


def bucket_fields(found: Bucketed) -> tuple[LengthBucket, ...]:
    """The answer, or why there is none, of each length bucket."""
    return tuple(_bucket(row) for row in found.rows)


def _bucket(row: BucketResult) -> LengthBucket:
    result, error = row.result, row.error
    proof = result.certificate if result else None
    return LengthBucket(
        max_length=row.bucket.max_length,
        longest=row.bucket.longest or None,
        samples=row.bucket.samples,
        **answer_fields(result),
        samples_per_second=_rate(proof),
        peak_bytes=proof.measurement.peak_device_bytes if proof else None,
        error=error_fields(error),
    )


def failure_document(
    error: AutotuneError,
    *,
    created: datetime,
    ref: str,
    settings: Settings | None = None,
    workload: WorkloadInfo | None = None,
    machine: Machine | None = None,
    warnings: Sequence[str] = (),
    check: Check | None = None,
    buckets: tuple[LengthBucket, ...] = (),
) -> FailureDocument:
    """What ``--json`` prints when there is no answer.

    Args:
        error: why.
        created: now; this room has no clock.
        ref: how the workload was to be loaded.
        settings: what was asked for; None when it made no sense.
        workload: None when it could not be loaded.
        machine: None when the search ended before it was looked at.
        warnings: what was found out on the way.
        check: where it was one.
        buckets: what came out for each length bucket.
    """
    known = workload_fields(workload) if workload else WorkloadFields(ref=ref, fingerprint=None, parameters=None)
    return FailureDocument(
        schema_version=_SCHEMA_VERSION,
        created=created,
        complete=False,
        workload=known,
        machine=MachineFields(**asdict(machine)) if machine else None,
        settings=settings_fields(settings) if settings else None,
        batch=NoBatch(
            micro_batch=None,
            accumulate=settings.accumulate if settings else None,
            effective=None,
            max_batch=None,
            refuted_at=None,
        ),
        environment=settings.environment if settings else {},
        evidence=None,
        search_id=None,
        limited_by=None,
        warnings=tuple(warnings),
        buckets=buckets,
        error=Error(kind=error.kind, message=error.message, hint=error.hint),
        check=check,
    )


def to_text(content: Document | FailureDocument | PredictionDocument) -> str:
    """The document as JSON, indented, ASCII only, one line break at its end."""
    return json.dumps(content.model_dump(mode="json"), indent=2) + "\n"


def schema() -> dict[str, object]:
    """JSON Schema of a document: of ``autotune.json`` (an answer) or of ``--json`` without an answer."""
    adapter: TypeAdapter[Document | FailureDocument] = TypeAdapter(Document | FailureDocument)
    return {"$schema": _DIALECT, "title": "autotune.json", **adapter.json_schema(mode="serialization")}


def prediction_schema() -> dict[str, object]:
    """JSON Schema of what ``autotune predict --json`` prints. Without any answer that is a ``FailureDocument`` as well."""
    adapter: TypeAdapter[PredictionDocument | FailureDocument] = TypeAdapter(PredictionDocument | FailureDocument)
    return {"$schema": _DIALECT, "title": "autotune predict --json", **adapter.json_schema(mode="serialization")}


def read(text: str) -> Document:
    """Check the text of an ``autotune.json``.

    Raises:
        UsageError: it is not a recommendation; every bad field is listed with its path. Or it is one of a newer version,
            or says itself that there was no answer.
    """
    try:
        return Document.model_validate_json(text)
    except ValidationError as error:
        problems = [
            f"{'.'.join(map(str, entry['loc'])) or 'the file'}: {entry['msg']}"[:_LONGEST]
            for entry in error.errors(include_url=False)
        ]
    _refuse_others(text)
    raise UsageError(
        f"this is not a recommendation of autotune: {len(problems)} "
        + ("field is wrong" if len(problems) == 1 else "fields are wrong"),
        detail="\n".join([*problems[:_MOST], *([f"and {len(problems) - _MOST} more"] if problems[_MOST:] else [])]),
        hint="write it again with: autotune search MODEL --output autotune.json",
    )


def _refuse_others(text: str) -> None:
    """Say what is wrong as a whole with what is no recommendation, where that explains more than its fields would.

    Raises:
        UsageError: see ``read``.
    """
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return
    version = content.get("schema_version") if isinstance(content, dict) else None
    if isinstance(content, dict) and content.get("kind") == "prediction":
        raise UsageError(
            f"this is a prediction for {str(content.get('ranks'))[:10]} ranks, which were not run: it recommends nothing",
            hint="search where the devices are: autotune search MODEL --ranks N --output autotune.json",
        )
    if isinstance(version, int) and version > _SCHEMA_VERSION:
        raise UsageError(
            f"this recommendation has schema_version {version}, and this autotune reads {_SCHEMA_VERSION}",
            hint="pip install --upgrade autotune-torch",
        )
    try:
        failed = FailureDocument.model_validate_json(text)
    except ValidationError:
        return
    raise UsageError(
        f"this says why a search had no answer ({failed.error.kind}), and recommends nothing: {' '.join(failed.error.message.split())}",
        hint=failed.error.hint or "search again: autotune search MODEL --output autotune.json",
    )


def _evaluation(result: SearchResult) -> EvaluationFields | None:
    found = result.answer.evaluation
    return EvaluationFields(**asdict(found), failure=evaluation_failure(result)) if found else None


def _with_loading(settings: Settings, answer: Answer) -> Settings:
    """The data loader's settings were measured apart from those of the step."""
    loading = answer.loading
    if loading is None:
        return settings
    return replace(settings, loader_workers=loading.workers, pin_memory=loading.pin_memory)


def _rate(probe: ProbeResult | None) -> float | None:
    return probe.samples_per_second if probe else None
