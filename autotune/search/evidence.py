"""What the history says about each batch size. Pure; what to ask next is decided elsewhere."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from autotune.model import Cause, Form, Measurement, Outcome, ProbeResult

_SECOND_CHANCES: Mapping[Cause, int] = {
    # The probe after it runs under a cap corrected by the non-PyTorch memory this one showed. Twice, because that
    # memory can grow once more (a library loads its kernels late).
    Cause.OVER_BUDGET: 2,
    # Somebody else's kill, or a process that just vanished: once is an accident.
    Cause.SIGNAL: 1,
    Cause.NO_ANSWER: 1,
    # Only on a machine that has already run a probe of this search (see `read`).
    Cause.ENVIRONMENT: 1,
    # A neighbour that starts or ends is soon done; one that goes on growing makes every answer worthless.
    Cause.OTHERS: 2,
    # Only by pages: right next to the limit a heap that is short of room may grow for eight steps without a leak.
    Cause.GROWTH: 1,
}
"""How often a size may fail in this way, in one form, before the failure counts."""


class Standing(Enum):
    """Where a size stands."""

    OPEN = auto()
    """Probed without a conclusion: the same probe has to run again."""
    FAILED = auto()
    FITS_SHORT = auto()
    CERTIFIED = auto()
    """Fits in the long form."""


@dataclass(frozen=True, slots=True)
class Finding:
    """All that is known about one size."""

    size: int
    standing: Standing
    probe: ProbeResult
    """The probe that decided the standing."""
    ever_fit: bool
    """Some probe of this size fitted, so the workload accepts the size, whatever happened in another form."""

    @property
    def cause(self) -> Cause:
        """Cause of the failure; there is none where the deciding probe fitted."""
        assert self.probe.failure is not None, f"batch {self.size} did not fail"
        return self.probe.failure.cause

    @property
    def confirm(self) -> bool:
        """True for a failure that may be memory or a fault of the installation."""
        return self.probe.failure is not None and self.probe.failure.confirm

    @property
    def is_ceiling(self) -> bool:
        """True for a failure that every larger size is expected to share."""
        return self.probe.outcome.is_ceiling

    @property
    def rejects_size(self) -> bool:
        """True for an error of the user's code that may come from an illegal size (odd, too small …)."""
        return self.probe.outcome is Outcome.WORKLOAD_ERROR and self.cause is not Cause.NO_STEPS

    @property
    def contradicted(self) -> bool:
        """True where the short form fitted and the long form failed."""
        return self.standing is Standing.FAILED and self.probe.form is Form.LONG and self.ever_fit


@dataclass(frozen=True, slots=True)
class Evidence:
    """The findings of a history."""

    findings: Mapping[int, Finding]
    """By size, ascending."""

    @property
    def open(self) -> Finding | None:
        """A size whose probe has to run again."""
        return next((f for f in self.findings.values() if f.standing is Standing.OPEN), None)

    @property
    def good(self) -> list[int]:
        """Sizes that fit as far as known, ascending."""
        return [s for s, f in self.findings.items() if f.standing in (Standing.FITS_SHORT, Standing.CERTIFIED)]

    @property
    def certified(self) -> list[int]:
        """Sizes that fit in the long form, ascending."""
        return [s for s, f in self.findings.items() if f.standing is Standing.CERTIFIED]

    @property
    def failed(self) -> list[Finding]:
        """Failed sizes, ascending."""
        return [f for f in self.findings.values() if f.standing is Standing.FAILED]

    @property
    def accepted(self) -> list[int]:
        """Sizes the workload ran at least once, ascending."""
        return [s for s, f in self.findings.items() if f.ever_fit]

    @property
    def short_form_misled(self) -> bool:
        """True once a size that fitted in the short form failed in the long one."""
        return any(f.contradicted for f in self.findings.values())

    @property
    def data_end(self) -> int | None:
        """Number of samples the data set was seen to end at; None as long as it did not."""
        largest = max(self.good, default=0)
        ends = [
            seen
            for f in self.failed
            if f.cause is Cause.DATA_SET
            and (seen := f.probe.measurement.observed_batch)
            and seen < f.size
            # A larger size that did get its samples proves that this was not the end of the data.
            and seen >= largest
        ]
        return min(ends, default=None)


def read(history: Sequence[ProbeResult]) -> Evidence:
    """Sort the history by size; a long probe outranks short ones, the newest of the same form wins."""
    by_size: dict[int, list[_Try]] = defaultdict(list)
    reserve_bytes = 0
    for probe in history:
        outside_bytes = probe.measurement.non_pytorch_bytes
        # Each probe is capped by the most non-PyTorch memory seen before it.
        by_size[probe.batch_size].append(_Try(probe, outside_bytes is not None and outside_bytes > reserve_bytes))
        reserve_bytes = max(reserve_bytes, outside_bytes or 0)
    machine_works = any(probe.fits for probe in history)
    return Evidence({size: _judge(by_size[size], machine_works) for size in sorted(by_size)})


class _Try(NamedTuple):
    probe: ProbeResult
    corrects_cap: bool
    """It showed more non-PyTorch memory than its cap allowed for, so the next one gets a smaller cap."""


def _judge(tries: Sequence[_Try], machine_works: bool) -> Finding:
    form = Form.LONG if any(t.probe.form is Form.LONG for t in tries) else Form.SHORT
    of_form = [t for t in tries if t.probe.form is form]
    newest = of_form[-1].probe
    if newest.fits:
        standing = Standing.CERTIFIED if form is Form.LONG else Standing.FITS_SHORT
    else:
        standing = Standing.OPEN if _deserves_another_try(of_form, machine_works) else Standing.FAILED
    return Finding(newest.batch_size, standing, newest, any(t.probe.fits for t in tries))


def _deserves_another_try(of_form: Sequence[_Try], machine_works: bool) -> bool:
    failure = of_form[-1].probe.failure
    assert failure is not None, "a probe that does not fit says why"
    cause = failure.cause
    if cause is Cause.SIGNAL and not failure.confirm:
        return False  # SIGSEGV, SIGABRT …: the process killed itself and will do so again.
    if cause is Cause.ENVIRONMENT and not machine_works:
        return False
    if cause is Cause.OVER_BUDGET and not of_form[-1].corrects_cap:
        return False
    if cause is Cause.GROWTH and not _seen_by_pages(of_form[-1].probe.measurement):
        return False
    times = sum(t.probe.failure is not None and t.probe.failure.cause is cause for t in of_form)
    return times <= _SECOND_CHANCES.get(cause, 0)


def _seen_by_pages(growth: Measurement) -> bool:
    """True where the process's pages grew, on the CPU; an allocator counts tensors, and kept graphs are counted one by one."""
    return growth.peak_reserved_bytes is None and not growth.graphs_kept
