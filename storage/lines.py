"""A search with its probes as one line of JSON, and back: to keep, to move to another ledger, to read elsewhere.

Lines are untrusted: reading one validates it field by field, as reading a row does.
"""

import base64
import binascii
import json
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

from autotune.errors import StoreError
from autotune.memory.encoding import decode, encode
from autotune.model import ProbeResult, SearchRecord, Trace
from autotune.storage.convert import jsonable, probe_adapter, search_adapter

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
    from pydantic import ValidationError

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
        record = search_adapter().validate_python(content.get("search"))
        return record, tuple(_read_probe(probe) for probe in content["probes"])
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise StoreError(f"{where}: {first['msg']}", hint=_HINT) from error


def _probe(probe: ProbeResult) -> Any:
    trace = base64.b64encode(encode(probe.trace)).decode("ascii") if probe.trace else None
    return _plain(asdict(replace(probe, trace=None))) | {"trace": trace}


def _read_probe(content: object) -> ProbeResult:
    if not isinstance(content, dict):
        raise StoreError("a probe is no object", hint=_HINT)
    result = probe_adapter().validate_python({**content, "trace": None})
    if result.fits != (result.failure is None):
        raise StoreError(f"outcome {result.outcome.value!r} of a probe contradicts its failure", hint=_HINT)
    return replace(result, trace=_read_trace(content.get("trace")))


def _read_trace(text: object) -> Trace | None:
    if text is None:
        return None
    try:
        return decode(base64.b64decode(str(text), validate=True))
    except (ValueError, binascii.Error) as error:
        raise StoreError(f"the trace of a probe is none: {error}", hint=_HINT) from error


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value.isoformat() if isinstance(value, datetime) else jsonable(value)
