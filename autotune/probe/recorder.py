"""What one probe process sees: peaks by phase, retries, losses, the place it is at. Readable at any moment.

Nothing here decides whether the result is good (``judge``).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

import torch

from autotune.diagnose.examiner import Examiner
from autotune.model import Composition, Measurement, PassPeaks, Phase, PhaseMemory
from autotune.probe.history import History
from autotune.probe.meter import Meter, Peak
from autotune.probe.wire import Channel


class Recorder:
    """Collects what a probe sees; can be read at any moment, also after a failure."""

    def __init__(self, channel: Channel, meter: Meter) -> None:
        self.meter = meter
        self.history: History | None = None
        self.examiner: Examiner | None = None
        """Of a diagnosis."""
        self.phase: Phase | None = None
        self.step: int | None = None
        self.batch_size: int | None = None
        """Of the pass that is running; None before the first."""
        self.facts: dict[str, object] = {}
        self.composition: dict[str, int] = {}
        self._channel = channel
        self._peaks: dict[Phase, Peak] = {}
        self._non_pytorch: int | None = None
        self.begin_steps()

    def begin_steps(self) -> None:
        """Steps that count follow; what those before them counted is forgotten, but for peaks of memory."""
        self.losses: torch.Tensor | None = None
        """Made once on the device, so that keeping losses does not look like a leak."""
        self.retries: list[int] = []
        self.allocated_after: list[int] = []
        """Less the batch itself, whose size may vary from step to step."""
        self.step_peaks: list[int | None] = []
        """Allocated bytes at most in each step; None where no allocator counts them."""
        self._step_peak: int | None = None
        self.outlines: list[int] = []
        """Of the shapes of all that modules returned, for the steps that they were looked at in."""
        self.timed: list[bool] = []
        """For each step whether it counts: a skipped one is faster than training is, one on a shorter batch than others."""
        self.executed = 0
        self.skipped = 0
        self._last_step = 0
        """Evaluation belongs to the step before it."""

    def begin_pass(self, batch_size: int) -> None:
        """Steps at this size follow. What an earlier pass saw is forgotten, except for what building took."""
        self.batch_size = batch_size
        self._peaks = {phase: peak for phase, peak in self._peaks.items() if phase is Phase.BUILD}
        self.begin_steps()

    def end_pass(self) -> None:
        """Note the peaks of a complete pass beside its trace; one in which steps were skipped is not like training."""
        assert self.history is not None and self.batch_size is not None
        self.history.mark(Phase.EXIT, self.executed, self.batch_size)
        if not self.skipped:
            peaks = self._peaks.values()
            allocated = max(peak.allocated_bytes for peak in peaks)
            reserved = max(peak.reserved_bytes or 0 for peak in peaks)
            self.history.add(PassPeaks(self.batch_size, self.executed, allocated, reserved))

    @contextmanager
    def during(self, phase: Phase, step: int | None = None) -> Iterator[None]:
        """Everything inside belongs to this phase."""
        self.phase, self.step = phase, step
        self._last_step = step or self._last_step
        self._channel.send("mark", phase=phase, step=step, batch_size=self.batch_size)
        if self.history is not None:
            self.history.mark(phase, step or self._last_step, self.batch_size or 0)
        self.meter.begin()
        try:
            yield
        finally:
            self._note(phase, self.meter.end())

    def arrive(self) -> None:
        """Say that the model of all ranks is called, in which this one may have to wait for others."""
        self._channel.send("mark", phase=self.phase, step=self.step, batch_size=self.batch_size, arrived=True)

    def begin_step(self) -> None:
        """What was there at most is asked about from here on."""
        self._step_peak = None

    def end_step(self, outline: int | None) -> None:
        """Keep what was there at most in this step, and the outline of its shapes, if that was looked at."""
        self.step_peaks.append(self._step_peak)
        if outline is not None:
            self.outlines.append(outline)

    def _note(self, phase: Phase, peak: Peak) -> None:
        if peak.reserved_bytes is not None:
            self._step_peak = max(peak.allocated_bytes, self._step_peak or 0)
        known = self._peaks.get(phase)
        if known is not None:
            reserved = None if peak.reserved_bytes is None else max(peak.reserved_bytes, known.reserved_bytes or 0)
            peak = Peak(max(peak.allocated_bytes, known.allocated_bytes), reserved)
        self._peaks[phase] = peak

    @property
    def highest_bytes(self) -> int:
        """Peak of allocated memory over all phases of the steps, building left out."""
        return max((peak.allocated_bytes for phase, peak in self._peaks.items() if phase is not Phase.BUILD), default=0)

    @property
    def highest_reserved_bytes(self) -> int:
        """The same of what the allocator held; 0 where there is none."""
        return max((p.reserved_bytes or 0 for phase, p in self._peaks.items() if phase is not Phase.BUILD), default=0)

    def read_device(self) -> None:
        """Note the non-PyTorch memory now; it only ever grows, as libraries load their kernels."""
        now = self.meter.non_pytorch()
        if now is not None:
            self._non_pytorch = max(now, self._non_pytorch or 0)

    def measurement(self, worker_seconds: float) -> dict[str, object]:
        """All of it as the fields of ``model.Measurement``, JSON-able."""
        peaks = list(self._peaks.values())
        allocated = max((p.allocated_bytes for p in peaks), default=None)
        reserved = max((p.reserved_bytes for p in peaks if p.reserved_bytes is not None), default=None)
        device = allocated if reserved is None else reserved + (self._non_pytorch or 0)
        return asdict(
            Measurement(
                steps_executed=self.executed,
                steps_skipped=self.skipped,
                step_seconds=tuple(self.facts.pop("step_seconds", ())),  # type: ignore[arg-type]
                losses=tuple(self.facts.pop("losses", ())),  # type: ignore[arg-type]
                phases=tuple(
                    PhaseMemory(phase=k, peak_allocated_bytes=p.allocated_bytes, peak_reserved_bytes=p.reserved_bytes)
                    for k, p in self._peaks.items()
                ),
                peak_allocated_bytes=allocated,
                peak_reserved_bytes=reserved,
                non_pytorch_bytes=self._non_pytorch,
                peak_device_bytes=device,
                others_bytes=self.meter.others_bytes,
                allocator_cap_bytes=self.meter.cap_bytes,
                retries_per_step=tuple(self.retries),
                allocated_after_step=tuple(self.allocated_after),
                composition=Composition(**self.composition),
                worker_seconds=worker_seconds,
                **self.facts,  # type: ignore[arg-type]
            )
        )
