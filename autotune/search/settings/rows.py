"""What the history says about one set of settings."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median

from autotune.model import Form, ProbeResult, Reason, Settings
from autotune.search.evidence import Evidence, Finding, Standing, read

_BY_PRECISION = (Form.TIMED, Form.LONG, Form.SHORT)
"""Forms that train and time, the one with the most comparable steps first."""
TRAINING = frozenset(_BY_PRECISION)


@dataclass(frozen=True)
class Row:
    """Settings with the probes that trained under them, whatever their accumulation."""

    settings: Settings
    """Plain."""
    probes: tuple[ProbeResult, ...] = ()
    """Oldest first, comparisons and recordings left out."""

    @cached_property
    def evidence(self) -> Evidence:
        """By size. A timed probe says as much about a size as a short one."""
        return read([replace(p, form=Form.SHORT) if p.form is Form.TIMED else p for p in self.probes])

    @property
    def open(self) -> ProbeResult | None:
        """A probe that has to run again."""
        finding = self.evidence.open
        if finding is None:
            return None
        return next(p for p in reversed(self.probes) if p.batch_size == finding.size)

    @cached_property
    def speeds(self) -> Mapping[int, float]:
        """Samples per second at each size that fits and was timed, ascending."""
        return {size: 1 / median(seconds) for size in self.evidence.good if (seconds := self.seconds(size))}

    @cached_property
    def shaky(self) -> Mapping[int, float]:
        """The same of sizes that fit when timed and proved too large in the long form: a smaller one may do."""
        failed = [f for f in self.evidence.failed if f.is_ceiling and f.contradicted]
        return {f.size: 1 / median(seconds) for f in failed if (seconds := self.seconds(f.size))}

    @property
    def timed(self) -> Mapping[int, float]:
        """Speeds to go by: of sizes that fit, or else of those near one that may."""
        return self.speeds or self.shaky

    @property
    def runs(self) -> bool:
        """Whether there is a size at which the settings can be recommended, or near one."""
        return bool(self.evidence.good or self.shaky)

    def seconds(self, size: int) -> tuple[float, ...]:
        """Seconds per sample of each timed step at this size, of the most precise form there is."""
        for form in _BY_PRECISION:
            found = [
                seconds / (p.batch_size * p.settings.accumulate)
                for p in self.probes
                if p.batch_size == size and p.form is form and p.fits
                for seconds in p.measurement.step_seconds
            ]
            if found:
                return tuple(found)
        return ()

    def times_timed(self, size: int) -> int:
        """How many timed probes this size had."""
        return sum(p.batch_size == size and p.form is Form.TIMED for p in self.probes)

    @property
    def too_large(self) -> list[int]:
        """Sizes that memory, or another limit that larger sizes share, forbids; ascending."""
        return [f.size for f in self.evidence.failed if f.is_ceiling or f.confirm]

    @property
    def certified(self) -> list[int]:
        """Sizes that fit in the long form, ascending."""
        return self.evidence.certified

    def fault(self, accepted: frozenset[int]) -> Finding | None:
        """A failure that is the settings' own and not one of size.

        Args:
            accepted: sizes that the workload is known to run at under other settings.
        """
        for finding in self.evidence.failed:
            if finding.is_ceiling or finding.confirm or finding.probe.form is Form.LONG:
                continue
            if finding.size in accepted or not self.evidence.good:
                return finding
        return None

    def largest_measured(self) -> ProbeResult | None:
        """The newest probe of the largest size that fits and tells its memory."""
        told = [
            p
            for p in self.probes
            if p.fits
            and p.measurement.peak_allocated_bytes
            and self.evidence.findings[p.batch_size].standing in (Standing.FITS_SHORT, Standing.CERTIFIED)
        ]
        return max(told, key=lambda p: p.batch_size, default=None)

    def asked_for(self, reason: Reason) -> int:
        """How many probes had this reason."""
        return sum(p.reason is reason for p in self.probes)
