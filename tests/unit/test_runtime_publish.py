"""What a guard publishes of its training: seldom, whole, gone at the end, and never in the training's way."""

import errno
import gc
import json
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import autotune
from autotune import published
from autotune.errors import MemoryWarning
from autotune.probe.device_lock import this_host
from autotune.runtime import Guard
from autotune.units import GIB
from autotune.workload.source import INSIDE_VARIABLE
from tests.unit.planted_trainings import Clock, Failing, PlantedMeter, make_batch, make_model, mean_square


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where trainings of this test publish."""
    monkeypatch.setenv(published.FOLDER_VARIABLE, str(tmp_path / "published"))
    monkeypatch.delenv(INSIDE_VARIABLE, raising=False)
    return tmp_path / "published"


@pytest.fixture
def clock() -> Clock:
    return Clock()


def guarded(clock: Clock, **options: Any) -> Guard:
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return autotune.guard(model, optimizer, meter=PlantedMeter(), clock=clock, **options)


def told(folder: Path) -> dict[str, Any]:
    """The only file."""
    (path,) = folder.iterdir()
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def test_a_training_is_told_from_its_first_step_on(folder: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/home/anna/train.py", "--token", "geheim"])
    guard = guarded(clock, limit="70GiB", start_step=40)
    assert not folder.exists()
    guard.after_step()
    first = told(folder)
    assert (first["version"], first["pid"], first["host"]) == (1, os.getpid(), this_host())
    assert (first["command"], first["device"], first["device_uuid"]) == ("train.py --token ***", "cpu", "")
    assert (first["step"], first["step_seconds"], first["rank"]) == (41, None, None)
    assert (first["used_bytes"], first["peak_used_bytes"], first["limit_bytes"]) == (10 * GIB, 10 * GIB, 70 * GIB)
    assert (first["allocated_bytes"], first["reserved_bytes"]) == (5 * GIB, 9 * GIB)
    assert (first["out_of_memory"], first["leak_bytes_per_step"], first["checkpoints"]) == (0, None, 0)
    guard.close()


def test_a_word_is_said_once_a_second_at_most_and_with_the_time_of_a_step(
    folder: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    write = published.write

    def counted(folder: Path, name: str, data: bytes) -> None:
        written.append(name)
        write(folder, name, data)

    monkeypatch.setattr(published, "write", counted)
    guard = guarded(clock)
    for _ in range(1001):
        guard.after_step()
        clock.now += 0.01
    assert len(written) == 11, "ten seconds"
    assert len(set(written)) == 1
    assert told(folder)["step_seconds"] == pytest.approx(0.01)
    for _ in range(3):
        clock.now += 30.0
        guard.after_step()
    assert len(written) == 14, "slow steps are told each, whether memory was looked at or not"
    assert (told(folder)["step"], told(folder)["step_seconds"]) == (1004, 30.0)
    guard.close()


def test_memory_that_ran_out_and_was_made_up_for_is_told(folder: Path, clock: Clock) -> None:
    with guarded(clock, splittable=True) as guard:
        guard.train_step(Failing(mean_square, 4), [make_batch(mean_square, 8)])
        assert (told(folder)["out_of_memory"], told(folder)["micro_batches_split"]) == (1, 1)
    assert list(folder.iterdir()) == []


def test_a_leak_that_was_found_is_told(folder: Path, clock: Clock) -> None:
    meter = PlantedMeter()
    guard = guarded(clock, every=1, least_seconds=0.0)
    guard._watch._meter = meter

    def train() -> None:
        for _ in range(60):
            meter.used += 4 << 20
            meter.allocated += 2 << 20
            clock.now += 1.0
            guard.after_step()

    with pytest.warns(MemoryWarning, match="memory grows by 2 MiB a step"):
        train()
    assert told(folder)["leak_bytes_per_step"] == 2 << 20
    guard.close()


def test_two_guards_of_a_process_have_a_file_each_until_they_are_closed(folder: Path, clock: Clock) -> None:
    one, other = guarded(clock), guarded(clock)
    one.after_step()
    other.after_step()
    assert len(list(folder.iterdir())) == 2
    one.close()
    one.close()
    other.after_step()
    assert len(list(folder.iterdir())) == 1
    other.close()
    assert list(folder.iterdir()) == []


def test_a_guard_that_nobody_closed_takes_its_file_along(folder: Path, clock: Clock) -> None:
    guard = guarded(clock)
    guard.after_step()
    assert len(list(folder.iterdir())) == 1
    del guard
    gc.collect()
    assert list(folder.iterdir()) == []


def test_a_fork_that_closes_what_it_inherited_leaves_the_file(folder: Path, clock: Clock) -> None:
    guard = guarded(clock)
    guard.after_step()
    child = os.fork()
    if child == 0:
        guard._watch._publisher.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert told(folder)["pid"] == os.getpid()
    guard.close()


@pytest.mark.parametrize("refuses", [OSError(errno.ENOSPC, "No space left on device"), PermissionError(1, "not yours")])
def test_a_disk_that_refuses_is_told_once_and_the_training_goes_on(
    folder: Path,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    refuses: OSError,
) -> None:
    def refuse(*args: object) -> None:
        raise refuses

    guard = guarded(clock)
    with monkeypatch.context() as patched, caplog.at_level(logging.WARNING, "autotune.runtime"):
        patched.setattr(published, "write", refuse)
        for _ in range(5):
            guard.after_step()
            clock.now += 2.0
    (record,) = caplog.records
    assert str(refuses) in record.message and "goes on" in record.message
    guard.after_step()
    assert told(folder)["step"] == 6, "there is room again"
    guard.close()


def test_nothing_is_published_where_nobody_wants_it_nor_within_probes(
    folder: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(INSIDE_VARIABLE, "1")
    with guarded(clock) as guard:
        guard.after_step()
    monkeypatch.delenv(INSIDE_VARIABLE)
    monkeypatch.setenv(published.FOLDER_VARIABLE, "")
    monkeypatch.setattr(published, "write", lambda *args: pytest.fail("nothing is to be written"))
    with guarded(clock) as guard:
        for _ in range(3):
            guard.after_step()
            clock.now += 10.0
    assert not folder.exists()


def test_each_of_several_processes_says_its_rank(folder: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: dict[str, Callable[[], object]] = {
        "is_initialized": lambda: True,
        "get_world_size": lambda: 4,
        "get_rank": lambda: 3,
    }
    for name, answer in answers.items():
        monkeypatch.setattr(torch.distributed, name, answer)
    with guarded(clock) as guard:
        guard.after_step()
        assert told(folder)["rank"] == 3
