"""What a check found, in words. Pure."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from autotune.errors import CheckFailed
from autotune.model import ProbeResult
from autotune.report.fields import Change, Document
from autotune.report.probes import failure_lines
from autotune.report.ranks import where_run
from autotune.report.words import failure_words, format_share


def change_words(change: Change) -> str:
    """``driver: 570.1 in the file, 580.2 here - batch and speed were measured with another version``, in one line."""
    words = f"{change.what}: {change.then} in the file, {change.here} here - {change.meaning}"
    if change.then is None or change.here is None:
        words = f"{change.what} changed - {change.meaning}"
    return " ".join(words.split())


def passed_words(path: Path, content: Document, probe: ProbeResult | None) -> str:
    """The line of a check that found nothing against the file."""
    if probe is None:
        return f"{path} is as valid as when it was made; batch {content.batch.micro_batch} was not probed"
    measured = probe.measurement
    ran = f"{path} holds here: batch {probe.batch_size} ran {measured.steps_executed} steps {where_run(probe)}"
    if measured.peak_device_bytes is None:
        return ran
    return f"{ran}, peak {format_share(measured.peak_device_bytes, probe.budget_bytes)}"


def stale_error(path: Path, changes: Sequence[Change], given: Sequence[str]) -> CheckFailed | None:
    """Why the file does not hold, if any change makes it stale.

    Args:
        path: of the file.
        changes: all that were found.
        given: what was named beside the file, for the hint.
    """
    stale = [change_words(change) for change in changes if change.stale]
    if not stale:
        return None
    first, more = stale[0], len(stale) - 1
    rest = f" (and {more} more)" if more else ""
    return CheckFailed(
        f"{path} does not hold here: {first}{rest}", detail="\n".join(stale) if more else "", hint=renewal(path, given)
    )


def unsafe_error(path: Path, probe: ProbeResult, split: str, given: Sequence[str]) -> CheckFailed:
    """Why the file does not hold where its batch is not safe.

    Args:
        path: of the file.
        probe: the one that decided.
        split: where its memory went; empty where that says nothing.
        given: what was named beside the file, for the hint.
    """
    detail = split or "\n".join(failure_lines(probe))
    return CheckFailed(
        f"{path} does not hold here: batch {probe.batch_size} is not safe: {failure_words(probe)}",
        detail=detail,
        hint=renewal(path, given),
    )


def renewal(path: Path, given: Sequence[str]) -> str:
    """How to make the file anew."""
    return f"to make it anew: {shlex.join(['autotune', 'check', str(path), '--if-stale', 'search', *given])}"
