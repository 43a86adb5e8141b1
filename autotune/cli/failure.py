"""What ``--json`` prints for an error that has no document of its own yet."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime

from autotune.errors import AutotuneError

_OF_A_SEARCH = ("search", "max-batch", "predict", "check")
"""Commands whose document says under ``error`` why there is no answer."""


def failure_text(error: AutotuneError, argv: Sequence[str]) -> str:
    """The document of a search without an answer, or, of other commands, ``error`` alone.

    Args:
        error: what ended the command.
        argv: arguments without the program's name.
    """
    if argv and argv[0] in _OF_A_SEARCH:
        from autotune.report.document import failure_document, to_text

        return to_text(failure_document(error, created=datetime.now(UTC), ref="")).rstrip("\n")
    facts = {"kind": error.kind, "message": error.message, "hint": error.hint}
    return json.dumps({"error": facts}, indent=2)
