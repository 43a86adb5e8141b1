"""What a guard tells others of its training, once a second at most: see ``autotune.published``. Never in its way."""

import json
import logging
import os
import sys
import time
import uuid
import weakref
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import psutil
import torch

from autotune import published
from autotune.masked import without_secrets
from autotune.model import TrainingStatus
from autotune.probe.device_lock import this_host
from autotune.runtime.degrade import Failures
from autotune.runtime.readings import Reading
from autotune.runtime.where import rank_here

EVERY_S = 1.0
VERSION = 1
_COMMAND_LIMIT = 200
_LOG = logging.getLogger("autotune.runtime")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a guard knows at a step."""

    step: int
    reading: Reading
    """Its last."""
    peak_used_bytes: int
    limit_bytes: int
    retries: int
    leak_bytes_per_step: float | None
    checkpoints: int
    failures: Failures


class Publisher:
    """One training's file; made with the first word, removed at the end or with this object, whatever comes first."""

    def __init__(self, device: torch.device, clock: Callable[[], float] = time.monotonic) -> None:
        """
        Args:
            device: that is trained on.
            clock: for tests.
        """
        self._device, self._clock = device, clock
        self._began = datetime.now(UTC)
        self._due = clock()
        self._last: tuple[int, float] | None = None
        """Step and time of the last word."""
        self._name = f"{os.getpid()}-{uuid.uuid4().hex[:12]}.json"
        self._folder: Path | None = None
        self._remove: weakref.finalize[[Path, str, int], Publisher] | None = None
        self._told = False

    def publish(self, see: Callable[[], Seen]) -> None:
        """Say how it goes, if a second has passed since the last word. What the disk refuses is told once, and tried again.

        Args:
            see: asked only when there is something to say.
        """
        now = self._clock()
        if now < self._due:
            return
        self._due = now + EVERY_S
        seen = see()
        seconds = None
        if self._last is not None and seen.step > self._last[0]:
            seconds = (now - self._last[1]) / (seen.step - self._last[0])
        self._last = seen.step, now
        try:
            self._write(seen, seconds)
        except (OSError, psutil.Error) as error:
            if not self._told:
                self._told = True
                _LOG.warning("`autotune watch` may not see this training, which goes on: %s", error)

    def close(self) -> None:
        """The training is over."""
        if self._remove is not None:
            self._remove()

    def _write(self, seen: Seen, step_seconds: float | None) -> None:
        if self._remove is None:
            self._folder = published.own_folder()
            if self._folder is None:
                self._due = float("inf")
                return
            self._remove = weakref.finalize(self, _remove, self._folder, self._name, os.getpid())
        if self._folder is not None:
            content = {"version": VERSION, **asdict(self._status(seen, step_seconds))}
            published.write(self._folder, self._name, json.dumps(content, default=datetime.isoformat).encode())

    def _status(self, seen: Seen, step_seconds: float | None) -> TrainingStatus:
        reading, failures = seen.reading, seen.failures
        words = " ".join([os.path.basename(sys.argv[0] or "python"), *sys.argv[1:]])
        return TrainingStatus(
            pid=os.getpid(),
            process_started=psutil.Process().create_time(),
            host=this_host(),
            command=without_secrets(words)[:_COMMAND_LIMIT],
            rank=rank_here(),
            device=str(self._device),
            device_uuid=_uuid(self._device),
            began=self._began,
            updated=datetime.now(UTC),
            step=seen.step,
            step_seconds=step_seconds,
            allocated_bytes=reading.allocated_bytes,
            reserved_bytes=reading.reserved_bytes,
            used_bytes=reading.used_bytes,
            peak_used_bytes=seen.peak_used_bytes,
            limit_bytes=seen.limit_bytes,
            capacity_bytes=reading.capacity_bytes,
            host_rss_bytes=reading.host_rss_bytes,
            out_of_memory=failures.out_of_memory,
            micro_batches_split=failures.micro_batches_split,
            retries=seen.retries,
            leak_bytes_per_step=seen.leak_bytes_per_step,
            checkpoints=seen.checkpoints,
        )


def _uuid(device: torch.device) -> str:
    if device.type != "cuda":
        return ""
    return str(getattr(torch.cuda.get_device_properties(device), "uuid", ""))


def _remove(folder: Path, name: str, pid: int) -> None:
    if os.getpid() == pid:  # a fork inherits the object, not the training
        published.remove(folder, name)
