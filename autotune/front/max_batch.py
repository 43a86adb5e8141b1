"""The largest safe batch of what a script passed, and the answer that it gets."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from autotune.executors.asked import Where
from autotune.front.given import source_of
from autotune.front.laboratory import refuse_inside
from autotune.front.searching import search, search_buckets
from autotune.model import Bucketed, Evaluation, SearchResult
from autotune.planning import PlanOptions, make_plan
from autotune.ports import SearchObserver


@dataclass(frozen=True, slots=True)
class MaxBatch:
    """What ``find_max_batch`` returns; ``int()`` gives the batch size."""

    batch_size: int
    """Largest certified batch size."""
    refuted_at: int | None
    """Smallest larger size that was executed and is not safe; None when a bound ended the search."""
    evidence: SearchResult
    """All probes, budget, machine and workload."""

    buckets: "Mapping[int, MaxBatch | None]" = field(default_factory=dict, hash=False)
    """Where ``buckets`` were given, the answer of each, shortest first; None where no sample is so short. The rest here is
    then of the longest that has samples, which is safe for all of them."""

    @property
    def evaluation(self) -> Evaluation | None:
        """The largest evaluation that goes with it, told apart; None = not probed: the workload has no ``evaluate``."""
        return self.evidence.answer.evaluation

    def __int__(self) -> int:
        return self.batch_size

    __index__ = __int__


def find(
    workload: object,
    functions: dict[str, Any],
    options: PlanOptions,
    *,
    buckets: Sequence[int] | None,
    storage: str | os.PathLike[str] | None,
    fresh: bool,
    observer: SearchObserver | None,
    where: Where,
) -> MaxBatch:
    """See ``api.find_max_batch``.

    Args:
        functions: what goes with a live model, by the names of the arguments; None = not given.
        options: of the plan.
        where: probes run.
    """
    refuse_inside()
    from autotune.probe.workplace import Workplace

    with Workplace() as folder:
        source = source_of(workload, functions, folder / "workload.pkl")
        asked = make_plan(source, **options)
        trains_here = not source.command  # a command trains in a process of its own
        if buckets is not None:
            return _by_bucket(search_buckets(asked, buckets, storage, fresh, observer, where, trains_here=trains_here))
        return _answer(search(asked, storage, fresh, observer, where, trains_here=trains_here))


def _answer(result: SearchResult) -> MaxBatch:
    return MaxBatch(result.answer.max_batch, result.answer.refuted_at, result)


def _by_bucket(found: Bucketed) -> MaxBatch:
    """The answers of all buckets.

    Raises:
        NothingFits, TimeRanOut: one of them has none; a note says which have.
    """
    answers = {row.bucket.max_length: _answer(row.result) if row.result else None for row in found.rows}
    error, widest = found.error, found.widest
    if error is not None:
        known = ", ".join(f"{length}: batch {int(answer)}" for length, answer in answers.items() if answer)
        error.add_note(f"length buckets with an answer: {known or 'none'}")
        raise error
    assert widest is not None  # no bucket with samples: refused before the search
    return replace(_answer(widest), buckets=answers)
