"""The user's training command as it is to be run with a recommendation."""

from autotune.knobs import in_words
from autotune.model import SearchResult
from autotune.workload.command import SCRATCH, fill


def training_command(result: SearchResult) -> str | None:
    """What to type; ``{scratch}`` is left for the user to fill in. None where the workload is no command."""
    if not result.plan.source.command:
        return None
    filled = fill(result.plan.source, result.answer.recommended_batch, in_words(result.settings), f"{{{SCRATCH}}}")
    return filled.with_environment(result.settings.environment).text
