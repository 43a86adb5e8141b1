"""What ``autotune watch`` may see, without any of it being there."""

import json
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil

from autotune import published
from autotune.model import TrainingStatus
from autotune.probe.device_lock import Holder, this_host
from autotune.units import GIB, MIB
from autotune.watch.snapshot import Device, Search, Snapshot, Tenant, Training
from tests.planted_nvml import LARGE, SLICE, SMALL

TAKEN = datetime(2026, 11, 30, 10, 20, 31, tzinfo=UTC)


def status(**changes: Any) -> TrainingStatus:
    """Of a training by this very process, so that it lives."""
    process = psutil.Process()
    fields: dict[str, Any] = {
        "pid": process.pid,
        "process_started": process.create_time(),
        "host": this_host(),
        "command": "train.py --lr 0.1",
        "rank": None,
        "device": "cuda:0",
        "device_uuid": LARGE.removeprefix("GPU-"),
        "began": TAKEN - timedelta(hours=1),
        "updated": TAKEN - timedelta(seconds=1),
        "step": 1200,
        "step_seconds": 0.25,
        "allocated_bytes": 9 * GIB,
        "reserved_bytes": 12 * GIB,
        "used_bytes": 18 * GIB,
        "peak_used_bytes": 19 * GIB,
        "limit_bytes": 22 * GIB,
        "capacity_bytes": 24 * GIB,
        "host_rss_bytes": 3 * GIB,
        "out_of_memory": 2,
        "micro_batches_split": 3,
        "retries": 5,
        "leak_bytes_per_step": None,
        "checkpoints": 1,
    }
    return TrainingStatus(**{**fields, **changes})


def written(one: TrainingStatus, **changes: Any) -> bytes:
    """As a guard writes it, but for the changes."""
    content = {"version": 1, **asdict(one), **changes}
    return json.dumps(content, default=datetime.isoformat).encode()


def publish(name: str, one: TrainingStatus, **changes: Any) -> Path:
    """Put it where trainings of this user are looked for."""
    folder = published.own_folder()
    assert folder is not None
    published.write(folder, name, written(one, **changes))
    return folder / name


ANNA = Tenant(pid=4711, user="anna", name="python", command="python train.py --token ***", used_bytes=18 * GIB)
HIDDEN = Tenant(pid=12, user="", name="", command="", used_bytes=None)
HOLDER = Holder(user="bob", pid=99, command="autotune search model.py", host="box pid:[1]", since=TAKEN)
SNAPSHOT = Snapshot(
    taken=TAKEN,
    host="box",
    version="0.1.0",
    driver="580.1",
    devices=(
        Device(
            device="gpu0",
            uuid=LARGE,
            name="card a",
            total_bytes=24 * GIB,
            used_bytes=18 * GIB,
            utilisation=0.87,
            temperature_celsius=61,
            power_watts=312.5,
            power_limit_watts=700,
            tenants=(HIDDEN, ANNA),
            probed_by=HOLDER,
        ),
        Device(device="gpu1", uuid=SMALL, name="card b", total_bytes=None, used_bytes=None, lock_told=False),
        Device(
            device="gpu2.0",
            uuid=SLICE,
            name="card c, an instance",
            total_bytes=10 * GIB,
            used_bytes=10 * GIB - 256 * MIB,
            tenants=(),
        ),
        Device(device="host", uuid="", name="memory", total_bytes=64 * GIB, used_bytes=0),
    ),
    trainings=(
        Training(id="1-a", script="train.py", user="anna", device="gpu0", status=status(pid=4711)),
        Training(
            id="1-b",
            script="train.py",
            user="anna",
            device="gpu0",
            status=status(pid=4711, leak_bytes_per_step=float(2 * MIB), peak_used_bytes=23 * GIB, checkpoints=0),
        ),
        Training(
            id="2-c",
            script="lit.py",
            user="bob",
            device="host",
            status=status(
                pid=5,
                rank=3,
                device="cpu",
                device_uuid="",
                allocated_bytes=None,
                reserved_bytes=None,
                step_seconds=None,
                retries=0,
                checkpoints=0,
                out_of_memory=0,
                updated=TAKEN - timedelta(minutes=3),
            ),
        ),
    ),
    searches=(
        Search(
            id="3ca48fb993e7",
            workload="examples/tiny_gpt.py",
            device_name="card a",
            owner="process 99 on box",
            created=TAKEN - timedelta(minutes=2),
            probes=7,
        ),
    ),
    notes=("1 file tells nothing of a training: it is no JSON object (in /tmp/x)",),
    seconds=0.02,
)
