"""``autotune explain``: where the memory of a batch size goes, and what makes its peak."""

from typing import Annotated

from autotune import api
from autotune.cli.options import Json, Storage, argument, optional

_Batch = Annotated[int | None, optional("--batch", metavar="N", min=1, help="Size to explain. Default: the answer.")]


def explain(
    search_id: Annotated[
        str | None, argument(metavar="ID", help="As listed by runs ls. Default: the newest with an answer.")
    ] = None,
    batch: _Batch = None,
    storage: Storage = None,
    json: Json = False,
) -> None:
    """Show what the memory of a batch size is used for."""
    from autotune.cli.console import Screen
    from autotune.report.explanation import explanation_facts, explanation_text
    from autotune.report.records import to_json

    explanation = api.explain(search_id, batch_size=batch, storage=storage)
    Screen(stderr=False).say(to_json(explanation_facts(explanation)) if json else explanation_text(explanation))
