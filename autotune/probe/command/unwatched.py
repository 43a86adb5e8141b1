"""Probes of commands that the hook cannot look into: memory as the system shows it, and how the process ended."""

import contextlib
import threading
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from autotune.model import Cause, Failure, Machine, Measurement, Outcome, ProbeResult, Question
from autotune.probe import nvml
from autotune.probe.answers import OWN_FAULTS, failure_of
from autotune.probe.ended import Ended, tail
from autotune.units import format_bytes

_EVERY_S = 0.05
"""Between two looks; a peak that is shorter may be missed."""


class Sampler:
    """The most memory that was seen in use while inside."""

    def __init__(self, machine: Machine, guardian: int) -> None:
        """
        Args:
            machine: a CUDA device is looked at as a whole.
            guardian: on the CPU, everything below this process is looked at.
        """
        self._machine = machine
        self._guardian = guardian
        self._before = self._now() if machine.device == "cuda" else 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="autotune-sampler", daemon=True)
        self.peak_bytes: int | None = None
        """None where nothing could be seen."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._end.wait(_EVERY_S):
            now = self._now()
            if now is not None:
                self.peak_bytes = max(self.peak_bytes or 0, now - (self._before or 0))

    def _now(self) -> int | None:
        if self._machine.device == "cuda":
            return nvml.used_bytes(self._machine.device_uuid)
        total = 0
        with contextlib.suppress(psutil.Error):  # the guardian is gone, which is told elsewhere
            for process in psutil.Process(self._guardian).children(recursive=True):
                with contextlib.suppress(psutil.Error):  # a process that has just ended
                    total += process.memory_info().rss
        return total or None


def judge_unwatched(
    question: Question,
    ended: Ended,
    *,
    machine: Machine,
    peak_bytes: int | None,
    budget_bytes: int,
    started_at: datetime,
    stdout: Path,
    stderr: Path,
    disturbed: Failure | None = None,
) -> ProbeResult:
    """What the end of a command says of a batch size: it fits if it ended well, or still ran when its time was up.

    ``disturbed``: others changed their memory on the device meanwhile, so that nothing about memory was seen.
    """
    stderr_tail = tail(stderr)
    outcome, failure = Outcome.FITS, None
    if ended.exit_code != 0 and not ended.timed_out:
        outcome, failure = failure_of(
            replace(ended, answer=None),
            device=machine.device,
            capacity_bytes=budget_bytes,
            stderr_tail=stderr_tail,
            of_command=True,
        )
    elif peak_bytes is not None and peak_bytes > budget_bytes:
        outcome = Outcome.UNSAFE
        failure = Failure(
            cause=Cause.OVER_BUDGET,
            message=f"{format_bytes(peak_bytes)} were seen in use, and the budget is {format_bytes(budget_bytes)}",
            hint="the limit of a command that the hook does not attach to is watched, not enforced",
        )
    if disturbed is not None and outcome not in OWN_FAULTS:
        outcome, failure, peak_bytes = Outcome.UNRELIABLE, disturbed, None
    return ProbeResult(
        batch_size=question.batch_size,
        form=question.form,
        reason=question.reason,
        outcome=outcome,
        failure=failure,
        measurement=Measurement(peak_allocated_bytes=peak_bytes, peak_device_bytes=peak_bytes),
        budget_bytes=budget_bytes,
        launcher="unwatched command",
        started_at=started_at,
        seconds=ended.seconds,
        settings=question.settings,
        stdout_tail=tail(stdout),
        stderr_tail=stderr_tail,
    )
