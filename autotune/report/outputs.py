"""An answer, or why there is none, as single values for pipelines, and as Markdown for their pages. Pure.

Names of files and messages are other people's text: in Markdown they stand in code, where nothing of them has a meaning.
"""

from collections.abc import Iterator

from autotune.report.check import change_words
from autotune.report.fields import Check, Document, FailureDocument
from autotune.report.quoted import block, code
from autotune.report.words import format_rate, format_share
from autotune.units import format_bytes

JSON = "json"
"""The name of the whole document among the values."""
NAMES = (
    "safe",
    "max_batch",
    "micro_batch",
    "accumulate",
    "effective",
    "samples_per_second",
    "peak_bytes",
    "budget_bytes",
    "search_id",
    "complete",
    "error",
)
"""Values that there are for an answer. Without one there are ``safe`` and ``error`` alone."""


def outputs(content: Document | FailureDocument) -> dict[str, str]:
    """Name -> value, as text."""
    if isinstance(content, FailureDocument):
        return {"safe": "false", "error": content.error.kind}
    batch, evidence = content.batch, content.evidence
    peak_bytes, budget_bytes = evidence.peak_bytes, evidence.budget_bytes
    if content.check is not None:  # what was seen now
        peak_bytes = content.check.peak_bytes if content.check.outcome else peak_bytes
        budget_bytes = content.check.budget_bytes or budget_bytes
    values = {
        "safe": True,
        "max_batch": batch.max_batch,
        "micro_batch": batch.micro_batch,
        "accumulate": batch.accumulate,
        "effective": batch.effective,
        "samples_per_second": evidence.samples_per_second,
        "peak_bytes": peak_bytes,
        "budget_bytes": budget_bytes,
        "search_id": content.search_id,
        "complete": content.complete,
        "error": "",
    }
    assert tuple(values) == NAMES
    return {name: _text(value) for name, value in values.items()}


def summary(title: str, content: Document | FailureDocument, detail: str = "") -> str:
    """A section of Markdown.

    Args:
        title: the command.
        content: what it prints under ``--json``.
        detail: longer text beside an error's message.
    """
    lines = list(_failure(content, detail) if isinstance(content, FailureDocument) else _answer(content))
    return "\n".join([f"### {title}", "", *lines, ""])


def _answer(content: Document) -> Iterator[str]:
    batch, evidence = content.batch, content.evidence
    accumulated = f" x {batch.accumulate} accumulated" if batch.accumulate > 1 else ""
    yield f"**Train with batch {batch.micro_batch}**{accumulated}: {code(content.workload.ref)}"
    yield ""
    yield "| | |"
    yield "|---|---|"
    yield f"| largest safe batch | {batch.max_batch} |"
    yield f"| refuted at | {batch.refuted_at or '-'} |"
    if evidence.samples_per_second is not None:
        yield f"| samples/s | {format_rate(evidence.samples_per_second)} |"
    if evidence.peak_bytes is not None:
        yield f"| peak, when searched | {format_share(evidence.peak_bytes, evidence.budget_bytes)} |"
    if content.check is not None:
        yield f"| checked now | {_probed(content.check)} |"
    yield ""
    yield f"On {code(content.machine.device_name)}, torch {code(content.machine.torch_version)}."
    notes = list(content.warnings)
    if content.check is not None:
        notes += [change_words(change) for change in content.check.changes]
    yield from _list(notes)


def _failure(content: FailureDocument, detail: str) -> Iterator[str]:
    yield f"**No safe answer** ({content.error.kind}): {code(content.workload.ref)}"
    yield ""
    yield from block("\n".join(filter(None, [content.error.message, detail])))
    if content.error.hint:
        yield from ["", f"Next: {code(content.error.hint)}"]
    if content.check is not None:
        yield from _list([change_words(change) for change in content.check.changes])


def _probed(check: Check) -> str:
    if check.batch is None:
        return "compared, not probed"
    budget = format_bytes(check.budget_bytes or 0)
    peak = f", peak {format_bytes(check.peak_bytes)} of {budget}" if check.peak_bytes is not None else ""
    return f"batch {check.batch} {(check.outcome or '').replace('_', ' ')}{peak}"


def _list(texts: list[str]) -> Iterator[str]:
    if texts:
        yield ""
    yield from (f"- {code(text)}" for text in texts)


def _text(value: object) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
