"""Why a search has no answer: nothing fits, the workload fails, it was interrupted, or it still runs."""

from collections.abc import Sequence

from autotune.model import ProbeResult, SearchRecord, SearchState
from autotune.report.memory_split import memory_split
from autotune.report.page.view import NoAnswer, Part
from autotune.report.words import failure_words
from autotune.search.apart import Apart
from autotune.search.evidence import read
from autotune.search.verdict import Ending, why_nothing
from autotune.units import counted

_TAIL = 4000
"""Characters of a traceback or of output that are shown: its end."""


def no_answer(record: SearchRecord, probes: Sequence[ProbeResult], command: str) -> NoAnswer:
    """What became of the search.

    Args:
        record: without an answer.
        probes: of the search.
        command: that asks the same question, for those that can go on; empty where there is none.
    """
    again = f"{command.replace(' --fresh', '')}" if command else "call find_max_batch() from the same script again"
    ran = counted(len(probes), "finished probe") if probes else "no finished probes"
    if record.state is SearchState.INTERRUPTED:
        # What stopped it is the name of an exception, or a sentence.
        because = "it was stopped" if record.message.startswith("stopped by ") else record.message or "it was stopped"
        return NoAnswer(
            title="Interrupted",
            message=f"No answer yet: {because}." + (f" {ran} will be used again." if probes else ""),
            detail="",
            next_action=f"to go on: {again}",
        )
    if record.state is SearchState.RUNNING:
        return NoAnswer(
            title="Not finished",
            message=f"The search runs; so far it has {ran}.",
            detail="",
            next_action="make the report again when it has ended",
        )
    if record.based_on:
        return NoAnswer(
            title="No longer safe",
            message=record.message or f"The answer of search {record.based_on} no longer holds.",
            detail="",
            next_action=again,
        )
    if all(finding.probe.fits for finding in read(probes).findings.values()):
        return NoAnswer(
            title="No answer", message=record.message or "It ended without one.", detail="", next_action=again
        )
    return _failed(record, probes)


def _failed(record: SearchRecord, probes: Sequence[ProbeResult]) -> NoAnswer:
    training = Apart.of(probes).training
    ending, decisive = why_nothing(training if any(not p.fits for p in training) else probes)
    failure = decisive.failure
    what = failure.message if failure else ""
    message = f"Batch {decisive.batch_size}: {failure_words(decisive)}" + (f" - {what}" if what else "")
    if ending is Ending.NOTHING_FITS:
        split = memory_split(decisive, record.workload, precision=record.plan.settings.precision)
        return NoAnswer(
            title="Nothing fits",
            message=message,
            detail="",
            next_action=split.next_action,
            parts=tuple(
                Part(kind=share.part.value, size_bytes=share.size_bytes, expected=share.expected)
                for share in split.shares
            ),
            at_batch=split.batch_size,
            requested_bytes=split.requested_bytes,
        )
    text = (failure.traceback if failure else "") or decisive.stderr_tail
    titles = {Ending.WORKLOAD: "The workload fails", Ending.ENVIRONMENT: "The machine stands in the way"}
    hint = failure.hint if failure else ""
    return NoAnswer(
        title=titles[ending],
        message=message,
        detail=text[-_TAIL:],
        next_action=hint or "correct it, and run the search again",
    )
