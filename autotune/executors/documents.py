"""What travels between the tool and its workers: JSON of the nouns of ``autotune.model``, validated on arrival.

Workers run on other hosts, perhaps with another version of autotune, and messages may come from anybody who can write where
they are left. So nothing is evaluated and there is no pickle of ours; a message in another form is an error that names it.
"""

from dataclasses import fields, is_dataclass, replace
from datetime import datetime
from typing import Any, TypeVar

from autotune.errors import AutotuneError, EnvironmentTrouble, NothingFits, TimeRanOut, UsageError, WorkloadError
from autotune.memory.encoding import from_text, to_text
from autotune.model import ProbeResult, Question
from autotune.model.untrusted import noun_of

T = TypeVar("T")

_ERRORS: dict[str, type[AutotuneError]] = {
    kind.kind: kind for kind in (UsageError, WorkloadError, EnvironmentTrouble, NothingFits, TimeRanOut)
}
SAME_VERSION = "use the same version of autotune on all workers, and look for what else writes there"


def plain(value: object) -> Any:
    """Nouns, alone or within others, as JSON takes them; instants in ISO 8601."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value.isoformat() if isinstance(value, datetime) else value


def read(kind: type[T], content: object, what: str) -> T:
    """A noun of a message.

    Raises:
        EnvironmentTrouble: it is none.
    """
    try:
        return noun_of(kind, content)
    except ValueError as error:
        raise EnvironmentTrouble(f"{what} is in an unknown form: {error}", hint=SAME_VERSION) from error


def result_document(result: ProbeResult) -> dict[str, Any]:
    """A probe; its trace as text of ``memory.encoding``."""
    trace = to_text(result.trace) if result.trace else None
    content: dict[str, Any] = plain(replace(result, trace=None))
    return content | {"trace": trace}


def read_result(content: object, what: str) -> ProbeResult:
    """What ``result_document`` wrote.

    Raises:
        EnvironmentTrouble: it is no probe.
    """
    if not isinstance(content, dict):
        raise EnvironmentTrouble(f"{what} is no object", hint=SAME_VERSION)
    result = read(ProbeResult, {**content, "trace": None}, what)
    text = content.get("trace")
    try:
        return result if text is None else replace(result, trace=from_text(text))
    except ValueError as error:
        raise EnvironmentTrouble(f"{what} has a trace that is none: {error}", hint=SAME_VERSION) from error


def read_answer(content: object, asked: Question, what: str) -> ProbeResult:
    """The probe that was asked for.

    Raises:
        EnvironmentTrouble: it is no probe, or another one.
    """
    result = read_result(content, what)
    # A recording goes on to larger sizes than the first.
    of_size = result.batch_size == asked.batch_size or (
        asked.trace_unit is not None and result.batch_size > asked.batch_size
    )
    if not of_size or (result.form, result.settings) != (asked.form, asked.settings):
        raise EnvironmentTrouble(
            f"{what} is to another question: batch {result.batch_size}, {result.form}, in place of"
            f" {asked.batch_size}, {asked.form}, or with other settings",
            hint=SAME_VERSION,
        )
    return result


def error_document(error: AutotuneError) -> dict[str, str]:
    """An error of ours that ended a request."""
    return {"kind": error.kind, "message": error.message, "hint": error.hint, "detail": error.detail}


def read_error(content: object) -> AutotuneError:
    """What ``error_document`` wrote; a kind that is not known is trouble with the environment."""
    words = content if isinstance(content, dict) else {}
    text = {name: str(words.get(name, "")) for name in ("kind", "message", "hint", "detail")}
    kind = _ERRORS.get(text["kind"], EnvironmentTrouble)
    return kind(text["message"] or "a worker refused without a reason", hint=text["hint"], detail=text["detail"])
