"""``autotune schema``: what programs that read ``autotune.json``, or what ``--json`` prints, can rely on."""

from enum import StrEnum
from typing import Annotated

import typer


class Of(StrEnum):
    """Documents that have a schema."""

    RECOMMENDATION = "recommendation"
    PREDICTION = "prediction"


def schema(
    of: Annotated[
        Of,
        typer.Option(
            "--of", help="autotune.json, which search, max-batch and check print with --json; or what predict prints."
        ),
    ] = Of.RECOMMENDATION,
) -> None:
    """Print the JSON Schema of autotune.json or of a prediction."""
    import json

    from autotune.cli.console import Screen
    from autotune.report import document

    content = document.prediction_schema() if of is Of.PREDICTION else document.schema()
    Screen(stderr=False).say(json.dumps(content, indent=2))
