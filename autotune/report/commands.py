"""How the training is started with a recommendation."""

from autotune.knobs import in_words
from autotune.model import Plan, SearchResult
from autotune.workload.command import SCRATCH, fill


def training_command(result: SearchResult) -> str | None:
    """What to type; ``{scratch}`` is left for the user to fill in. None where the workload is no command."""
    if not result.plan.source.command:
        return None
    filled = fill(result.plan.source, result.answer.recommended_batch, in_words(result.settings), f"{{{SCRATCH}}}")
    return filled.with_environment(result.settings.environment).text


def launch(plan: Plan) -> str:
    """How to start a training of several ranks; empty where one process trains."""
    if plan.ranks == 1:
        return ""
    hosts = plan.world // plan.ranks
    words = [f"--nnodes={hosts}"] if hosts > 1 else []
    return " ".join(["torchrun", *words, f"--nproc-per-node={plan.ranks}", "train.py"])
