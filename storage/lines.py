"""A search with its probes as one line of JSON, and back: to keep, to move to another ledger, to read elsewhere.

Lines are untrusted: reading one validates it field by field, as reading a row does.
"""

import json
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

from autotune.errors import StoreError
from autotune.memory.encoding import from_text, to_text
from autotune.model import ProbeResult, SearchRecord
from autotune.model.untrusted import noun_of
from autotune.storage.convert import clean, jsonable

LINE_FORMAT = 1
"""1: ``format``, ``search`` and ``probes``, with the fields of SearchRecord and ProbeResult; a trace as base64."""

_HINT = "give what `autotune runs export` wrote, one line a search"


def to_line(record: SearchRecord, probes: tuple[ProbeResult, ...]) -> str:
    """ASCII without a line break. Instants are ISO 8601 with their offset; NaN and the infinities are text."""
    content = {"format": LINE_FORMAT, "search": _plain(asdict(record)), "probes": [_probe(probe) for probe in probes]}
    return json.dumps(content, allow_nan=False, separators=(",", ":"))


def from_line(text: str) -> tuple[SearchRecord, tuple[ProbeResult, ...]]:
    """Read a line of this or an older version.

    Raises:
        StoreError: it is none; says what is wrong with it, but not in which line.
    """
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"it is not JSON: {error}", hint=_HINT) from error
    if not isinstance(content, dict) or not isinstance(content.get("probes"), list):
        raise StoreError("it is no search with its probes", hint=_HINT)
    if content.get("format") != LINE_FORMAT:
        raise StoreError(
            f"it has format {content.get('format')!r}, and this autotune reads {LINE_FORMAT}",
            hint=f"pip install -U autotune-torch, or {_HINT}",
        )
    try:
        record = noun_of(SearchRecord, content.get("search"))
        if not record.id or record.id != clean(record.id):
            raise ValueError(f"id: {record.id!r:.60} names no search")
        return record, tuple(_read_probe(probe) for probe in content["probes"])
    except ValueError as error:
        raise StoreError(str(error), hint=_HINT) from error


def _probe(probe: ProbeResult) -> Any:
    trace = to_text(probe.trace) if probe.trace else None
    return _plain(asdict(replace(probe, trace=None))) | {"trace": trace}


def _read_probe(content: object) -> ProbeResult:
    fields, text = ({**content, "trace": None}, content.get("trace")) if isinstance(content, dict) else (content, None)
    result = noun_of(ProbeResult, fields)
    return result if text is None else replace(result, trace=from_text(text))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value.isoformat() if isinstance(value, datetime) else jsonable(value)
