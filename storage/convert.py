"""Rows to values and back: the only place that knows both. Rows are untrusted, since anything may have written them.

Reading validates every field against the dataclasses of ``autotune.model``; there is no pickle and no evaluation.
"""

import json
import logging
import math
from dataclasses import asdict, fields, replace
from typing import Any, TypeVar

from autotune.errors import DamagedRow, StoreError
from autotune.memory.encoding import FORMAT, decode, encode
from autotune.model import Answer, ProbeResult, SearchRecord, Trace
from autotune.model.untrusted import noun_of
from autotune.storage.door import damaged_row
from autotune.storage.tables import ProbeRow, SearchRow, TraceRow

T = TypeVar("T", SearchRecord, ProbeResult)

_log = logging.getLogger("autotune")

_DOCUMENTS = frozenset(
    {"plan", "workload", "machine", "budget", "answer", "settings", "failure", "measurement", "ranks"}
)
"""Fields kept as JSON text; every other field is a column of the same name, but for ``trace``, a row of its own."""


def search_to_row(record: SearchRecord) -> SearchRow:
    """Make the row of a search."""
    settings = record.plan.settings
    row = SearchRow(
        **_columns(record),
        workload_ref=clean(record.workload.ref),
        workload_fingerprint=clean(record.workload.fingerprint),
        machine_fingerprint=clean(record.machine.fingerprint),
        device_name=clean(record.machine.device_name),
        precision=settings.precision.value,
        allocator=clean(settings.allocator),
        accumulate=settings.accumulate,
        budget_bytes=record.budget.limit_bytes,
    )
    write_answer(row, record.answer)
    return row


def write_answer(row: SearchRow, answer: Answer | None) -> None:
    """Put an answer, or its absence, into the row of a search."""
    row.answer = _document(answer) if answer else None
    row.max_batch = answer.max_batch if answer else None
    row.refuted_at = answer.refuted_at if answer else None
    row.recommended_batch = answer.recommended_batch if answer else None
    row.limited_by = clean(answer.limited_by) if answer else None


def search_from_row(row: SearchRow) -> SearchRecord:
    """Read a search.

    Raises:
        DamagedRow: the row is damaged; names the table, the id and the field.
    """
    return _read(SearchRecord, row)


def probe_to_row(search_id: str, number: int, result: ProbeResult) -> ProbeRow:
    """Make the row of a probe, the ``number``-th (from 1) of its search, and with it that of its trace.

    Raises:
        StoreError: its trace breaks the rules of ``Trace``.
    """
    failure, measurement = result.failure, result.measurement
    return ProbeRow(
        **_columns(result),
        search_id=search_id,
        number=number,
        accumulate=result.settings.accumulate,
        cause=failure.cause.value if failure else None,
        phase=failure.phase.value if failure and failure.phase else None,
        message=clean(failure.message) if failure else None,
        steps_executed=measurement.steps_executed,
        median_step_seconds=measurement.median_step_seconds,
        samples_per_second=result.samples_per_second,
        peak_allocated_bytes=measurement.peak_allocated_bytes,
        peak_reserved_bytes=measurement.peak_reserved_bytes,
        peak_device_bytes=measurement.peak_device_bytes,
        non_pytorch_bytes=measurement.non_pytorch_bytes,
        trace=_trace_to_row(result.trace) if result.trace else None,
    )


def probe_from_row(row: ProbeRow) -> ProbeResult:
    """Read a probe. A trace that is damaged is left out, and the ``autotune`` logger warned.

    Raises:
        DamagedRow: the row is damaged; names the table, the id and the field.
    """
    return replace(_read(ProbeResult, row), trace=_trace_from_row(row))


def clean(text: str) -> str:
    """Replace what databases refuse in text, NUL and lone surrogates: output of user programs may hold anything."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def _columns(value: SearchRecord | ProbeResult) -> dict[str, Any]:
    """What of a row is a field of the value; ``_read`` undoes it."""
    columns = {}
    for field in fields(value):
        content = getattr(value, field.name)
        if field.name == "trace":
            continue
        if field.name in _DOCUMENTS and content is not None:
            content = _document(content)
        columns[field.name] = clean(content) if isinstance(content, str) else content
    return columns


def _read(kind: type[T], row: SearchRow | ProbeRow) -> T:
    values: dict[str, Any] = {}
    for field in fields(kind):
        if field.name == "trace":  # see _trace_from_row: damage to it is no error
            continue
        value = getattr(row, field.name)
        if field.name in _DOCUMENTS and value is not None:
            try:
                value = json.loads(value)
            except (ValueError, TypeError, RecursionError) as error:  # SQLite lets any type into any column
                raise _damaged(row, f"column {field.name} is not JSON: {error}") from error
        values[field.name] = value
    try:
        return noun_of(kind, values)
    except ValueError as error:
        raise _damaged(row, str(error)) from error


def _trace_to_row(trace: Trace) -> TraceRow:
    try:
        data = encode(trace)
    except ValueError as error:
        raise StoreError(f"the trace of a probe is none: {error}", hint="please report it with this message") from error
    return TraceRow(format=FORMAT, num_events=len(trace.events), data=data)


def _trace_from_row(row: ProbeRow) -> Trace | None:
    if row.trace is None:
        return None
    data: object = row.trace.data
    try:
        if isinstance(data, bytes):
            return decode(data)
        why = f"column data is {type(data).__name__}, not bytes"  # SQLite lets any type into any column
    except ValueError as error:
        why = str(error)
    # Not a StoreError: a trace only helps to choose sizes, and what the probe found is true without it.
    where = f"{TraceRow.__tablename__}, probe_id {row.id} (search {row.search_id!r})"
    _log.warning("%s is damaged: %s; the probe is read without it", where, why)
    return None


def _damaged(row: SearchRow | ProbeRow, why: str) -> DamagedRow:
    if isinstance(row, ProbeRow):
        return damaged_row(ProbeRow.__tablename__, f"{row.id} (search {row.search_id!r:.60})", row.search_id, why)
    return damaged_row(SearchRow.__tablename__, f"{row.id!r:.60}", row.id, why)


def _document(value: object) -> str:
    """JSON text of a dataclass, or of several."""
    content = [asdict(one) for one in value] if isinstance(value, tuple) else asdict(value)  # type: ignore[call-overload]
    return json.dumps(jsonable(content), allow_nan=False)


def jsonable(value: Any) -> Any:
    """Make strict JSON possible: ``NaN`` and the infinities, which losses may be, become text that reads as a float."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {key: jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(item) for item in value]
    return value
