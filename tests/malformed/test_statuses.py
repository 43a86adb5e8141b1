"""Status files of trainings, which anything may have written."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from autotune import published
from autotune.watch.document import snapshot_json
from autotune.watch.metrics import samples
from autotune.watch.trainings import trainings
from autotune.watch.view import lines
from tests.malformed.inputs import damaged, inputs
from tests.planted_watch import SNAPSHOT, status, written

SOUND = json.loads(written(status(host="elsewhere")))


def shown(data: bytes, folder: Path) -> None:
    """One file is a training that can be shown in every way, or a note."""
    os.environ[published.FOLDER_VARIABLE] = str(folder)
    try:
        published.write(folder, "1-a.json", data)
        found = trainings(SNAPSHOT.devices, SNAPSHOT.taken)
    finally:
        del os.environ[published.FOLDER_VARIABLE]
    assert len(found.trainings) + len(found.notes) <= 1
    snapshot = replace(SNAPSHOT, trainings=found.trainings, notes=found.notes)
    assert snapshot_json(snapshot).isascii()
    assert "\x1b" not in "".join(line.text for line in lines(snapshot))
    for one in samples(snapshot):
        assert float(one.value) == one.value
        assert "".join(one.labels).encode().decode() == "".join(one.labels), "half a character cannot be sent"


@inputs(150)
@given(content=damaged(SOUND))
def test_a_damaged_status_is_a_training_or_a_note(content: Any, tmp_path: Path) -> None:
    try:
        data = json.dumps(content).encode()
    except ValueError:  # a number of more digits than Python writes
        return
    shown(data, tmp_path)


@inputs(50)
@given(data=st.binary(max_size=200))
def test_bytes_are_a_note(data: bytes, tmp_path: Path) -> None:
    shown(data, tmp_path)
