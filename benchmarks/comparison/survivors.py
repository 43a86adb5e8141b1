"""Which answers have to survive real training, and what is known of the others. Pure."""

from collections.abc import Mapping
from enum import StrEnum

from benchmarks.comparison.cases import AUTOTUNE
from benchmarks.comparison.results import Survival


class Wanted(StrEnum):
    """Whose answers are trained with."""

    ALL = "all"
    AUTOTUNE = "autotune"
    LARGER = "larger"
    """autotune's, and those of peers that are larger."""


def sizes(answers: Mapping[str, int], wanted: Wanted) -> list[int]:
    """The sizes to train at, smallest first, each once.

    Args:
        answers: finder -> answer; those without one, or with 0, are left out.
        wanted: whose answers.
    """
    own = answers.get(AUTOTUNE)
    if wanted is Wanted.AUTOTUNE:
        return [] if own is None else [own]
    least = own if own is not None and wanted is Wanted.LARGER else 0
    return sorted({size for size in answers.values() if size >= max(1, least)})


def verdict(answer: int, known: Mapping[int, Survival]) -> str:
    """Whether training at this size survives, in the words of the table."""
    run = known.get(answer)
    if run is None:
        larger = min((size for size, other in known.items() if size > answer and other.survived), default=None)
        return "not run" if larger is None else f"not run; {larger} does"
    if not run.survived:
        return f"no, ends in step {run.steps + 1}"
    if run.retries:
        return f"yes, {run.retries} {'retry' if run.retries == 1 else 'retries'}"
    return "yes"
