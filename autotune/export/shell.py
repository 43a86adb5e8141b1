"""For a POSIX shell: ``eval "$(autotune export autotune.json --to env)"``, then start the training from it."""

import shlex
from collections.abc import Mapping

from autotune.export.nouns import Draft, Recommendation

BATCH_SIZE = "AUTOTUNE_BATCH_SIZE"
ACCUMULATE = "AUTOTUNE_ACCUMULATE"


def exports(recommendation: Recommendation) -> Draft:
    """One ``export`` line per variable: those that PyTorch reads, and the batch for scripts that look for it."""
    variables = {
        **recommendation.environment,
        BATCH_SIZE: str(recommendation.micro_batch),
        ACCUMULATE: str(recommendation.settings.accumulate),
    }
    wanted = recommendation.settings.environment.items()
    done = {"accumulate", "allocator"} if wanted <= recommendation.environment.items() else {"accumulate"}
    return Draft(text="\n".join(f"export {line}" for line in assignments(variables)), sets=frozenset(done))


def assignments(variables: Mapping[str, str]) -> list[str]:
    """``NAME=VALUE`` with the value quoted where a shell would read something into it."""
    return [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
