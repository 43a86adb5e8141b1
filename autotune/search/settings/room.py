"""What a larger batch would bring some settings: how large it may get, and how much faster that would be."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import log, sqrt

from autotune.model import ProbeResult
from autotune.search.settings.rows import Row

PEAK_DROP = 0.05
"""A larger size slower by more than this shows that throughput has a peak below it."""
_SLOWEST = 10.0
"""Half-way sizes beyond this many times the largest one measured are no longer told apart: throughput grows with the batch."""


@dataclass(frozen=True, slots=True)
class Saturation:
    """Throughput ``b / (b + half)`` as a share of what it tends to: a fixed time a step and one a sample.

    On an H200 ``half`` is 1 to 2 samples for GPT-2 124M (1,024 tokens, bf16), with and without compile.
    """

    half: float
    """Batch size at which half of it is reached; 0 where a smaller batch is as fast."""
    peak: int | None = None
    """Size above which throughput was seen to fall; None = it was not."""

    def gain(self, small: int, large: int) -> float:
        """Logarithm of how much faster the large size is."""
        if self.peak is not None:
            small, large = min(small, self.peak), min(large, self.peak)
        return log(large / (large + self.half)) - log(small / (small + self.half))

    def enough(self, top: int, tolerance: float) -> float:
        """The size from which on throughput is within this share of that at ``top``."""
        if self.peak is not None:
            top = min(top, self.peak)
        share = (1 - tolerance) * top / (top + self.half)
        return self.half * share / (1 - share)

    def of_faster(self, factor: float) -> "Saturation":
        """Of settings that are ``factor`` times as fast.

        Between what only makes samples faster (``half`` grows by the factor) and what makes the fixed time of a step as much
        shorter (it stays): on an H200 it grew by 1.7 for GPT-2, 7.6 times as fast, and by 4.6 for ResNet-50, 6.2 times as fast.
        """
        return replace(self, half=self.half * sqrt(max(1.0, factor)))


def saturation(speeds: Mapping[int, float]) -> Saturation | None:
    """From throughputs at the smallest and the fastest size; None with fewer than two sizes."""
    if len(speeds) < 2:
        return None
    fastest = max(speeds, key=lambda size: (speeds[size], -size))
    falls = any(size > fastest and speed < (1 - PEAK_DROP) * speeds[fastest] for size, speed in speeds.items())
    peak = fastest if falls else None
    small = min(speeds)
    if small == fastest:
        return Saturation(0.0, peak)
    slow, fast = speeds[small], speeds[fastest]
    shorter = slow / small - fast / fastest  # steps a second, fewer with the larger batch
    most = _SLOWEST * fastest
    return Saturation(most if shorter <= 0 else min(max(0.0, (fast - slow) / shorter), most), peak)


def expected_limit(row: Row) -> int | None:
    """The largest size that should fit, by what one or two sizes took; None where no memory was measured.

    What stays whatever the batch is taken from the probe's own account of parameters, gradients, optimizer state and
    buffers. Memory that grows in steps is why the caller leaves a margin.
    """
    probe = row.largest_measured()
    if probe is None:
        return None
    cap_bytes = probe.measurement.allocator_cap_bytes or probe.budget_bytes
    peak_bytes = held_bytes(probe)
    composition = probe.measurement.composition
    parts = (
        composition.parameters_bytes,
        composition.gradients_bytes,
        composition.optimizer_bytes,
        composition.buffers_bytes,
    )
    fixed_bytes = min(sum(part or 0 for part in parts), peak_bytes - 1)
    limit = int((cap_bytes - fixed_bytes) * probe.batch_size / (peak_bytes - fixed_bytes))
    return min([max(limit, probe.batch_size), *(size - 1 for size in row.too_large if size > probe.batch_size)])


def held_bytes(probe: ProbeResult) -> int:
    """What counts against the cap: reserved memory, or allocated where none is reserved."""
    measured = probe.measurement
    return measured.peak_reserved_bytes or measured.peak_allocated_bytes or 0
