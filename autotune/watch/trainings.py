"""Guarded trainings by what they publish: checked, since anybody may have written it, and let go when their process is."""

import json
import math
import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from autotune import published
from autotune.model import TrainingStatus
from autotune.probe.device_lock import lives, printable, this_host, user_of
from autotune.probe.turns import bare
from autotune.units import LARGEST, counted
from autotune.watch.snapshot import HOST, Device, Training

_VERSION = 1
_SILENT = timedelta(days=1)
"""A training elsewhere, whose process cannot be seen from here, counts as ended after so long without a word."""
_AHEAD = timedelta(hours=1)
"""A word from further in the future is none."""
_TEXT_LIMIT = 200
_SCRIPT_LIMIT = 40
_SCRIPT = re.compile(r"[^\w.+-]")


@dataclass(frozen=True, slots=True)
class Found:
    """What the folders hold."""

    trainings: tuple[Training, ...]
    notes: tuple[str, ...]
    """Of files that tell nothing."""


def trainings(devices: Sequence[Device], now: datetime | None = None) -> Found:
    """Those that run, longest first; files of this user's processes that have ended are removed.

    Args:
        devices: whose names are used.
        now: for tests.
    """
    now = now or datetime.now(UTC)
    found: list[tuple[published.Written, TrainingStatus]] = []
    strange: Counter[tuple[str, str]] = Counter()
    for written in published.read():
        status = _read(written.data)
        if isinstance(status, str):
            strange[str(written.folder), status] += 1
        elif _runs(status, now):
            found.append((written, status))
        elif written.uid == os.geteuid():
            published.remove(written.folder, written.name)
    found.sort(key=lambda one: (one[1].began, one[0].name))
    named = {bare(device.uuid): device.device for device in devices if device.uuid}
    notes = tuple(
        f"{counted(number, 'file tells', 'files tell')} nothing of a training: {why} (in {printable(folder)})"
        for (folder, why), number in strange.items()
    )
    return Found(tuple(_training(written, status, named) for written, status in found), notes)


def _training(written: published.Written, status: TrainingStatus, named: dict[str, str]) -> Training:
    device = HOST if status.device == "cpu" else named.get(bare(status.device_uuid), status.device)
    first = status.command.split(" ", 1)[0]
    script = _SCRIPT.sub("_", first)[:_SCRIPT_LIMIT] or "python"
    uid = user_of(written.uid)
    return Training(id=written.name.removesuffix(".json"), script=script, user=uid, device=device, status=status)


def _runs(status: TrainingStatus, now: datetime) -> bool:
    if status.host == this_host():
        return lives(status.pid, status.process_started)
    return now - status.updated < _SILENT


@cache
def _adapter() -> TypeAdapter[Any]:
    return TypeAdapter(TrainingStatus)


def _read(data: bytes | None) -> TrainingStatus | str:
    """The status, or why there is none."""
    if data is None:
        return "it cannot be read, or is too large"
    try:
        content = json.loads(data)
        if not isinstance(content, dict):
            return "it is no JSON object"
        if content.pop("version", None) != _VERSION:
            return "it was written by another version of autotune"
        status: TrainingStatus = _adapter().validate_python(content, strict=False)
    except (ValueError, RecursionError):
        return "it is no JSON of the known form"
    return _sane(status)


def _sane(status: TrainingStatus) -> TrainingStatus | str:
    """The same with its texts made printable and short; a sentence where a figure cannot be."""
    counts = [status.pid, status.step, status.used_bytes, status.peak_used_bytes, status.limit_bytes]
    counts += [status.capacity_bytes, status.host_rss_bytes, status.out_of_memory, status.micro_batches_split]
    counts += [status.retries, status.checkpoints, status.rank or 0]
    counts += [status.allocated_bytes or 0, status.reserved_bytes or 0]
    floats = [status.process_started, status.step_seconds or 0.0, status.leak_bytes_per_step or 0.0]
    if any(not 0 <= one < LARGEST for one in counts) or status.pid == 0:
        return "a number in it is none of a training"
    if any(not math.isfinite(one) or not 0 <= one < LARGEST for one in floats):
        return "a number in it is none of a training"
    if status.began.tzinfo is None or status.updated.tzinfo is None:
        return "a time in it says not of which zone"
    if status.updated - datetime.now(UTC) > _AHEAD:
        return "it was written in the future"
    return replace(
        status,
        command=printable(status.command)[:_TEXT_LIMIT],
        host=printable(status.host)[:_TEXT_LIMIT],
        device=printable(status.device)[:_TEXT_LIMIT],
        device_uuid=printable(status.device_uuid)[:_TEXT_LIMIT],
    )
