"""Looks at a training's memory every few steps: log, limit, leak, and what was certified. Never waits for the device."""

import logging
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import torch

from autotune.diagnose.growth import Growth
from autotune.errors import EnvironmentTrouble, MemoryWarning, UsageError
from autotune.runtime.certified import MemoryGuard
from autotune.runtime.degrade import Failures
from autotune.runtime.leak import LEAST_BYTES, LEAST_HOST_BYTES, Leak
from autotune.runtime.limits import Limit, read_limit
from autotune.runtime.log import Log
from autotune.runtime.publish import Publisher, Seen
from autotune.runtime.readings import Meter, Reading, default_limit, make_meter
from autotune.runtime.summary import Summary, propose
from autotune.units import format_bytes

OnLimit = Literal["continue", "stop"]
Write = Callable[[], Path]
"""Writes a checkpoint of the training as it is now."""

AGAIN_AFTER_S = 600.0
"""A training that stays above its limit is saved again after so long (an old checkpoint is little better than none), and
tried again where the disk refused."""

_LOG = logging.getLogger("autotune.runtime")


class Watch:
    """The eyes of a guard, and what it does about what they see."""

    def __init__(
        self,
        device: torch.device,
        *,
        limit: Limit | None = None,
        on_limit: OnLimit = "continue",
        log: Path | None = None,
        every: int = 10,
        least_seconds: float = 0.5,
        certified_bytes: int | None = None,
        failures: Failures | None = None,
        accumulate: int = 1,
        start_step: int = 0,
        meter: Meter | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            device: that is trained on.
            limit: of its use; None = the capacity minus headroom (2 %, at least 256 MiB). On the CPU bytes are of this
                process, a share is of the cgroup, the limits of the process or the host, whichever is nearest.
            on_limit: what follows the emergency checkpoint.
            log: file of JSON lines to append to; None = none.
            every: steps between looks.
            least_seconds: and seconds, at least.
            certified_bytes: device-wide peak that a probe measured; a training that holds more is warned of.
            failures: what ran out of memory so far, as somebody else counts it; None = nobody does.
            accumulate: micro-batches of an optimizer step.
            start_step: steps that were taken before.
            meter, clock: for tests.

        Raises:
            UsageError: an argument makes no sense.
            EnvironmentTrouble: the log cannot be made.
        """
        if every < 1 or least_seconds < 0:
            raise UsageError(f"every={every}, least_seconds={least_seconds}", hint="look every 1 step or more seldom")
        if on_limit not in ("continue", "stop"):
            raise UsageError(f"on_limit={on_limit!r}", hint="give 'continue' or 'stop'")
        own_bytes, self._share = read_limit(limit)
        self.limit_bytes = own_bytes
        """None = not known before the first look."""
        self.should_stop = False
        """A look has found the limit passed, a checkpoint is written, and ``on_limit`` is stop."""
        self.stop_reason = ""
        self.looks = 0
        self.checkpoints = 0
        self.peak_used_bytes: int | None = None
        self.growth: Growth | None = None
        self._on_limit, self._every, self._least_seconds, self._clock = on_limit, every, least_seconds, clock
        self._meter = meter or make_meter(device, own_bytes if device.type != "cuda" else None)
        self._log = Log(log)
        self._leak = Leak(LEAST_BYTES if device.type == "cuda" else LEAST_HOST_BYTES)
        self._certified_bytes = certified_bytes
        self._failures, self._accumulate = failures or Failures(), accumulate
        self._certified: MemoryGuard | None = None
        self._reading: Reading | None = None
        self._publisher = Publisher(device, clock)
        self._first_retries = 0
        self._start_step = start_step
        self._last_step, self._last_time = start_step, clock()
        self._next_step = start_step + 1
        self._tried_at: float | None = None
        self._told_limit = False

    @property
    def retries(self) -> int:
        """Of the allocator, between first and last look."""
        return 0 if self._reading is None else self._reading.retries - self._first_retries

    def observe(self, step: int, write: Write | None = None, graphs_kept: Callable[[], int] = lambda: 0) -> None:
        """After an optimizer step: looks if a look is due, and says how it goes if that is (see ``Publisher``).

        Args:
            step: its number, from 1.
            write: for the emergency checkpoint; None = there is none.
            graphs_kept: losses of earlier steps that are alive with their graph.
        """
        self._look(step, write, graphs_kept)
        reading = self._reading
        if reading is not None:
            self._publisher.publish(lambda: self._seen(step, reading))

    def _look(self, step: int, write: Write | None, graphs_kept: Callable[[], int]) -> None:
        if step < self._next_step:
            return
        now = self._clock()
        if self.looks and now - self._last_time < self._least_seconds:
            return
        seconds = (now - self._last_time) / max(1, step - self._last_step)
        self._last_step, self._last_time, self._next_step = step, now, step + self._every
        reading = self._meter.read()
        self._take_in(reading)
        self.record(
            "memory",
            step,
            allocated_bytes=reading.allocated_bytes,
            reserved_bytes=reading.reserved_bytes,
            device_used_bytes=reading.used_bytes,
            device_capacity_bytes=reading.capacity_bytes,
            host_rss_bytes=reading.host_rss_bytes,
            retries=self.retries,
            step_seconds=round(seconds, 6),
        )
        if self._certified is not None and reading.reserved_peak_bytes is not None:
            self._certified.look(step, reading.reserved_peak_bytes, reading.retries)
        if self.limit_bytes is not None and reading.used_bytes > self.limit_bytes:
            self._over(step, reading, write)
        growth = self._leak.look(step, reading.held_bytes)
        if growth is not None and self.growth is None:
            self._grows(step, growth, reading, graphs_kept())

    def emergency(self, step: int, why: str, write: Write | None) -> Path | None:
        """Write the checkpoint; None where there is none to write, or it could not be written, which is warned of."""
        if write is None:
            return None
        self._tried_at = self._clock()
        try:
            path = write()
        except (EnvironmentTrouble, UsageError) as error:  # the training is worth more than its checkpoint
            self._tell(f"step {step}: {why}, and {error.message}\nhint: {error.hint}")
            return None
        self.checkpoints += 1
        self.record("checkpoint", step, path=str(path), why=why)
        _LOG.warning("step %d: %s; checkpoint %s", step, why, path)
        return path

    def record(self, event: str, step: int, **fields: object) -> None:
        """A line of the log. What the disk refuses is warned of once; training goes on."""
        try:
            self._log.write(event, step, **fields)
        except EnvironmentTrouble as error:
            self._tell(f"{error.message}; training goes on without\nhint: {error.hint}")

    def summary(self, step: int) -> Summary:
        """The training so far; ``step``: its last."""
        failures = self._failures
        return Summary(
            steps=step - self._start_step,
            out_of_memory=failures.out_of_memory,
            micro_batches_split=failures.micro_batches_split,
            failed_at=failures.failed_at,
            ran_at=failures.ran_at,
            proposal=propose(failures, self._accumulate),
            peak_used_bytes=self.peak_used_bytes,
            limit_bytes=self.limit_bytes,
            retries=self.retries,
            growth_bytes_per_step=None if self.growth is None else self.growth.bytes_per_step,
            checkpoints=self.checkpoints,
        )

    def close(self, step: int) -> None:
        """The training is over: log its summary (see there), close the file, and publish no more."""
        self._publisher.close()
        summary = self.summary(step)
        self.record("summary", step, **summary.as_fields())
        self._log.close()
        _LOG.log(logging.WARNING if summary.out_of_memory else logging.INFO, "guarded training: %s", summary)

    def _seen(self, step: int, reading: Reading) -> Seen:
        return Seen(
            step=step,
            reading=reading,
            peak_used_bytes=self.peak_used_bytes or reading.used_bytes,
            limit_bytes=self.limit_bytes or default_limit(reading.capacity_bytes),
            retries=self.retries,
            leak_bytes_per_step=None if self.growth is None else self.growth.bytes_per_step,
            checkpoints=self.checkpoints,
            failures=self._failures,
        )

    def _take_in(self, reading: Reading) -> None:
        self.looks += 1
        if self._reading is None:
            self._first_retries, capacity = reading.retries, reading.capacity_bytes
            if self.limit_bytes is None:
                self.limit_bytes = default_limit(capacity) if self._share is None else int(self._share * capacity)
            self._certified = MemoryGuard(self._certified_bytes, capacity, reading.retries)
        self._reading = reading
        self.peak_used_bytes = max(self.peak_used_bytes or 0, reading.used_bytes)

    def _over(self, step: int, reading: Reading, write: Write | None) -> None:
        used, limit = format_bytes(reading.used_bytes), format_bytes(self.limit_bytes)
        why = f"{used} of {format_bytes(reading.capacity_bytes)} in use, above the limit of {limit}"
        due = self._tried_at is None or self._clock() - self._tried_at >= AGAIN_AFTER_S
        path = self.emergency(step, why, write) if due else None
        if self._on_limit == "stop" and (write is None or path is not None):
            self.should_stop = True
            self.stop_reason = f"step {step}: {why}" + (f"; checkpoint {path}" if path else "")
        if not self._told_limit:
            self._told_limit = True
            self._tell(
                f"step {step}: {why}"
                + (f"; checkpoint {path}" if path else "")
                + "\nhint: lower the batch size, or look"
                " for what else runs on the device"
            )

    def _grows(self, step: int, growth: Growth, reading: Reading, kept: int) -> None:
        self.growth = growth
        rate = growth.bytes_per_step
        text = (
            f"step {step}: memory grows by {format_bytes(round(rate))} a step, over {growth.steps} steps"
            f" ({growth.evenness:.0%} of all looks above the earlier ones)"
        )
        end = step + max(0, reading.capacity_bytes - reading.used_bytes) / rate
        text += f", and if it goes on so, runs out at about step {end:,.0f}"
        hint = "look for lists and caches that are never emptied"
        if kept:
            text += f"; {kept} losses of earlier steps are kept with their autograd graph"
            hint = "keep loss.item() or loss.detach(), not the loss itself"
        self.record(
            "leak", step, bytes_per_step=rate, evenness=growth.evenness, ends_at_step=round(end), graphs_kept=kept
        )
        self._tell(f"{text}\nhint: {hint}")

    def _tell(self, text: str) -> None:
        warnings.warn(MemoryWarning(text), stacklevel=2)
