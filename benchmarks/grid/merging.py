"""Several results files as one. Pure."""

from collections.abc import Sequence

from benchmarks.common.documents import check_alike
from benchmarks.grid.results import AnswerT, Results


def merge(documents: Sequence[Results]) -> Results:
    """Everything of all documents; of two answers to one question the finished one, else the later one.

    Raises:
        BadResults: they were made under different caps or with different numbers of steps.
    """
    check_alike(documents, "cap_bytes", "check_steps")
    merged = documents[0]
    for other in documents[1:]:
        merged = merged.model_copy(update={"runs": merged.runs + other.runs})
        for workload, new in other.workloads.items():
            old = merged.entry(workload)
            merged = merged.with_entry(
                workload,
                outside_bytes=new.outside_bytes if new.outside_bytes is not None else old.outside_bytes,
                searches=_together(old.searches, new.searches),
                peer=_finished(old.peer, new.peer),
                checks=_together(old.checks, new.checks),
            )
    return merged


def _together(old: dict[str, AnswerT], new: dict[str, AnswerT]) -> dict[str, AnswerT]:
    both = {name: _finished(old.get(name), new.get(name)) for name in {**old, **new}}
    return {name: answer for name, answer in both.items() if answer is not None}


def _finished(old: AnswerT | None, new: AnswerT | None) -> AnswerT | None:
    """The one that is done, else the later one."""
    return new if new is not None and (new.done or old is None or not old.done) else old
