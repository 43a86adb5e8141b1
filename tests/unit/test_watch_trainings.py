"""Guarded trainings as they are found: two of one process, those that ended, those elsewhere, and what is none."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest

from autotune import published
from autotune.watch.snapshot import Device
from autotune.watch.trainings import trainings
from tests.planted_nvml import LARGE
from tests.planted_watch import publish, status, written

DEVICES = (
    Device(device="gpu1", uuid=LARGE, name="card a", total_bytes=None, used_bytes=None),
    Device(device="host", uuid="", name="memory", total_bytes=None, used_bytes=None),
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where trainings publish."""
    monkeypatch.setenv(published.FOLDER_VARIABLE, str(tmp_path))
    return tmp_path


@pytest.fixture
def ended() -> Iterator[psutil.Process]:
    """A process that is over, and was waited for."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    process = psutil.Process(child.pid)
    process.create_time()
    child.communicate()
    yield process


def test_two_trainings_of_one_process_are_found_oldest_first_with_the_names_of_their_devices(folder: Path) -> None:
    publish("1-b.json", status(device="cpu", device_uuid="", step=7))
    publish("1-a.json", status(began=status().began + timedelta(seconds=1)))
    found = trainings(DEVICES)
    assert found.notes == ()
    assert [(one.id, one.device, one.script, one.status.step) for one in found.trainings] == [
        ("1-b", "host", "train.py", 7),
        ("1-a", "gpu1", "train.py", 1200),
    ]
    assert found.trainings[1].status == status(began=status().began + timedelta(seconds=1))
    assert found.trainings[0].user == psutil.Process().username()


def test_a_device_that_was_not_seen_has_the_name_that_pytorch_gave_it() -> None:
    publish("1-a.json", status(device="cuda:3", device_uuid="of-another-card"))
    (training,) = trainings(DEVICES).trainings
    assert training.device == "cuda:3"


def test_what_a_dead_process_left_is_removed(folder: Path, ended: psutil.Process) -> None:
    publish("1-a.json", status(pid=ended.pid, process_started=ended.create_time()))
    publish("1-b.json", status(process_started=status().process_started - 100))
    publish("1-c.json", status())
    assert [one.id for one in trainings(DEVICES).trainings] == ["1-c"]
    assert [path.name for path in folder.iterdir()] == ["1-c.json"], "its process id may be another's by now"


def test_a_process_elsewhere_counts_until_it_was_silent_for_a_day(folder: Path) -> None:
    now = datetime.now(UTC)
    publish("1-a.json", status(host="a container", pid=1, process_started=5.0, updated=now - timedelta(hours=23)))
    publish("1-b.json", status(host="a container", pid=1, process_started=5.0, updated=now - timedelta(hours=25)))
    assert [one.id for one in trainings(DEVICES, now).trainings] == ["1-a"]
    assert [path.name for path in folder.iterdir()] == ["1-a.json"]


GARBAGE = {
    "nothing": b"",
    "no JSON": b"\xff\x00{",
    "half": written(status())[:100],
    "a list": b"[]",
    "deep": b"[" * 8000,
    "too long": b" " * 9000,
    "another version": written(status(), version=2),
    "no version": written(status(), version=None),
    "a field of another kind": written(status(), step="many"),
    "a field too few": json.dumps({"version": 1, "pid": 1}).encode(),
    "a number that cannot be": written(status(), step=-1),
    "a number too large": written(status(), used_bytes=2**63),
    "a time that never ends": written(status(), step_seconds=1e400),
    "no number": written(status(), leak_bytes_per_step=float("nan")),
    "no process": written(status(), pid=0),
    "a time without a zone": written(status(), began="2026-11-30T10:00:00"),
    "from the future": written(status(), updated="2226-11-30T10:00:00+00:00"),
}


@pytest.mark.parametrize("data", GARBAGE.values(), ids=GARBAGE.keys())
def test_garbage_is_a_note_and_stays_and_hides_nobody(folder: Path, data: bytes) -> None:
    published.write(folder, "0-x.json", data)
    publish("1-a.json", status())
    found = trainings(DEVICES)
    assert [one.id for one in found.trainings] == ["1-a"]
    (note,) = found.notes
    assert note.startswith("1 file tells nothing of a training: ") and note.endswith(f" (in {folder})")
    assert (folder / "0-x.json").exists(), "whose it is, nobody knows"


def test_the_same_garbage_is_told_once_with_its_number(folder: Path) -> None:
    for number in range(3):
        published.write(folder, f"{number}-x.json", b"[]")
    assert trainings(DEVICES).notes == (f"3 files tell nothing of a training: it is no JSON object (in {folder})",)


def test_texts_of_others_are_printable_and_short_and_labels_plain(folder: Path) -> None:
    changes: dict[str, Any] = {
        "command": "tr\x1b[31main=\u202e ü.py " + "x" * 500,
        "device": "cuda\n:0",
        "device_uuid": "",
    }
    publish("1-a.json", status(), **changes)
    (training,) = trainings(DEVICES).trainings
    assert training.status.command.startswith("tr?[31main=") and len(training.status.command) == 200
    assert training.device == "cuda?:0"
    assert training.script == "tr__31main__"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
def test_what_the_dead_of_another_user_left_is_theirs_to_remove(folder: Path, ended: psutil.Process) -> None:
    path = publish("1-a.json", status(pid=ended.pid, process_started=ended.create_time()))
    for one in (folder, path):
        os.chown(one, 65534, 65534)
    assert trainings(DEVICES).trainings == ()
    assert path.exists()
