"""What travels between the tool and its workers: JSON of the nouns of ``autotune.model``, validated on arrival.

Workers run on other hosts, perhaps with another version of autotune, and messages may come from anybody who can write where
they are left. So nothing is evaluated and there is no pickle of ours; a message in another form is an error that names it.
"""

import base64
import binascii
from dataclasses import asdict, fields, is_dataclass, replace
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from autotune.errors import AutotuneError, EnvironmentTrouble, NothingFits, TimeRanOut, UsageError, WorkloadError
from autotune.memory.encoding import decode, encode
from autotune.model import ProbeResult
from autotune.units import LARGEST

if TYPE_CHECKING:
    from collections.abc import Hashable

T = TypeVar("T")

_ERRORS: dict[str, type[AutotuneError]] = {
    kind.kind: kind for kind in (UsageError, WorkloadError, EnvironmentTrouble, NothingFits, TimeRanOut)
}
_HINT = "use the same version of autotune on all workers, and look for what else writes there"


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
        found: T = _adapter(cast("Hashable", kind)).validate_python(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise EnvironmentTrouble(f"{what} is in an unknown form: {where}: {first['msg']}", hint=_HINT) from error
    except UsageError as error:  # how ``Settings`` refuses values
        raise EnvironmentTrouble(f"{what} is in an unknown form: {error.message}", hint=_HINT) from error
    if not _is_possible(asdict(found) if is_dataclass(found) and not isinstance(found, type) else found):
        raise EnvironmentTrouble(f"{what} has numbers that cannot be", hint=_HINT)
    return found


def result_document(result: ProbeResult) -> dict[str, Any]:
    """A probe; its trace as base64 of ``memory.encoding``."""
    trace = base64.b64encode(encode(result.trace)).decode("ascii") if result.trace else None
    content: dict[str, Any] = plain(replace(result, trace=None))
    return content | {"trace": trace}


def read_result(content: object, what: str) -> ProbeResult:
    """What ``result_document`` wrote.

    Raises:
        EnvironmentTrouble: it is no probe.
    """
    if not isinstance(content, dict):
        raise EnvironmentTrouble(f"{what} is no object", hint=_HINT)
    result = read(ProbeResult, {**content, "trace": None}, what)
    if result.fits != (result.failure is None):
        raise EnvironmentTrouble(f"{what}: outcome {result.outcome.value!r} contradicts its failure", hint=_HINT)
    text = content.get("trace")
    if text is None:
        return result
    try:
        return replace(result, trace=decode(base64.b64decode(str(text), validate=True)))
    except (ValueError, binascii.Error) as error:
        raise EnvironmentTrouble(f"{what} has a trace that is none: {error}", hint=_HINT) from error


def error_document(error: AutotuneError) -> dict[str, str]:
    """An error of ours that ended a request."""
    return {"kind": error.kind, "message": error.message, "hint": error.hint, "detail": error.detail}


def read_error(content: object) -> AutotuneError:
    """What ``error_document`` wrote; a kind that is not known is trouble with the environment."""
    words = content if isinstance(content, dict) else {}
    text = {name: str(words.get(name, "")) for name in ("kind", "message", "hint", "detail")}
    kind = _ERRORS.get(text["kind"], EnvironmentTrouble)
    return kind(text["message"] or "a worker refused without a reason", hint=text["hint"], detail=text["detail"])


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _is_possible(value: object) -> bool:
    """Whether all whole numbers within are such that the ledger can keep them."""
    if isinstance(value, dict):
        return all(map(_is_possible, value.values()))
    if isinstance(value, list | tuple):
        return all(map(_is_possible, value))
    return not isinstance(value, int) or abs(value) <= LARGEST
