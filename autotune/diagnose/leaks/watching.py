"""Steps a training and reads what it holds after each step, until it can be told whether that grows. In the child."""

import gc
import sys
import time
from dataclasses import asdict, replace

import torch

from autotune.diagnose.examiner import Training
from autotune.diagnose.leaks.census import hooks
from autotune.diagnose.leaks.closer import LEAST_STEPS, STEPS, CloserLook
from autotune.diagnose.leaks.heap import Heap
from autotune.diagnose.leaks.loading import watch_loader
from autotune.diagnose.leaks.signs import FIRST_STEPS, MOST_STEPS, WARM_UP, grows, has_told, steps_left
from autotune.model import LeakEvidence

MOST_SECONDS = 60.0
"""Of undisturbed steps; beyond it those there are have to do, ..."""
LEAST_READINGS = 8
"""... if they are so many after the warm-up."""
_LONGEST = 500
"""Characters of an error that are told."""


class LeakExaminer:
    """See ``Examiner``."""

    def __init__(self, steps: int | None) -> None:
        """``steps``: training steps that are read; None = as many as it takes to tell."""
        self._steps = steps
        self._heap = Heap()
        self._held: list[int] = []
        self._host: list[int] = []
        self._reserved: list[int] = []
        self._garbage: list[int] = []
        self._blocks: list[int] = []
        self._evidence = LeakEvidence(warm_up=WARM_UP)

    def begin(self, device: torch.device) -> None:
        if device.type == "cpu":
            self._heap.map_large_tensors_alone()

    def run(self, training: Training) -> None:
        collects, threshold = gc.isenabled(), gc.get_threshold()[0]
        on_device = training.device.type != "cpu"
        tracked = 0
        started = time.monotonic()
        hooks_before = 0
        while not self._enough(time.monotonic() - started):
            training.step()
            held = self._held_bytes(training)
            collected = held
            if len(self._held) >= WARM_UP:
                tracked += gc.get_count()[0]
                gc.collect()
                collected = self._held_bytes(training)
            self._held.append(collected)
            self._garbage.append(held - collected)
            if on_device:
                self._host.append(self._heap.held_bytes())
                self._reserved.append(training.peak_reserved_bytes())
            self._blocks.append(sys.getallocatedblocks())
            if len(self._held) == WARM_UP:
                gc.freeze()  # so that collecting after each step costs nothing; garbage so far stays as it is
                gc.disable()
                hooks_before = self._num_hooks(training)
            self._evidence = replace(
                self._evidence,
                graphs_kept=training.graphs_kept(),
                room_bytes=self._room(training),
                unreserved_bytes=_unreserved(training) if on_device else None,
            )
        per_step = tracked / max(1, len(self._held) - WARM_UP)
        self._evidence = replace(
            self._evidence,
            hooks_added=self._num_hooks(training) - hooks_before,
            gc_every_steps=threshold / per_step if collects and threshold and per_step > 0 else None,
        )
        self._look_closer(training)
        gc.unfreeze()
        if collects:
            gc.enable()
        self._evidence = watch_loader(self._evidence, training)

    def _look_closer(self, training: Training) -> None:
        """See what grows, if anything does and memory lasts for it."""
        seen = self._seen()
        if not grows(seen):
            return
        steps = min(STEPS, steps_left(seen) // 3)  # besides those that run line by line; and memory may end earlier
        if steps < LEAST_STEPS:
            self._evidence = replace(self._evidence, trouble="memory would not last for a closer look")
            return
        try:
            self._evidence = replace(self._evidence, suspects=CloserLook(training, steps).suspects())
        except Exception as error:  # noqa: BLE001 - the training went well without being looked into: what was seen stands
            trouble = f"the closer look ended with {type(error).__name__}: {error}"[:_LONGEST]
            self._evidence = replace(self._evidence, trouble=trouble)

    def facts(self) -> dict[str, object]:
        return asdict(self._seen())

    def _seen(self) -> LeakEvidence:
        return replace(
            self._evidence,
            held_bytes=tuple(self._held),
            host_bytes=tuple(self._host),
            reserved_bytes=tuple(self._reserved),
            garbage_bytes=tuple(self._garbage),
            blocks=tuple(self._blocks),
        )

    def _enough(self, seconds: float) -> bool:
        steps = len(self._held)
        if self._steps is not None:
            return steps >= self._steps
        if seconds > MOST_SECONDS:
            return steps >= WARM_UP + LEAST_READINGS
        return steps >= WARM_UP + FIRST_STEPS and (steps >= MOST_STEPS or has_told(self._seen()))

    def _held_bytes(self, training: Training) -> int:
        """Without the batch, whose size may vary."""
        if training.device.type == "cpu":
            return self._heap.held_bytes() - training.batch_bytes()
        return training.held_bytes()

    def _room(self, training: Training) -> int | None:
        """What the height of a step leaves of the limit."""
        cap_bytes = _cap(training)
        if cap_bytes is None:
            return None
        now = training.held_bytes() + training.batch_bytes()
        if training.device.type == "cpu":
            now = self._heap.mapped_bytes()
        return max(0, cap_bytes - max(now, training.peak_bytes()))

    def _num_hooks(self, training: Training) -> int:
        return sum(len(each.registered) for each in hooks(training.model, training.optimizer))


def _cap(training: Training) -> int | None:
    """What the training may hold now: libraries that it has loaded since the limit was set have taken of the device, too."""
    outside = training.non_pytorch_bytes()
    if training.cap_bytes is None or outside is None:
        return training.cap_bytes
    return min(training.cap_bytes, max(0, training.limit_bytes - outside))


def _unreserved(training: Training) -> int | None:
    cap_bytes = _cap(training)
    return None if cap_bytes is None else max(0, cap_bytes - training.peak_reserved_bytes())
