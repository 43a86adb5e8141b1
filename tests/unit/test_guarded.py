"""Both ends of the connection between the tool and its guardian, without a guardian."""

import json
import os
from pathlib import Path

import pytest

from autotune.errors import EnvironmentTrouble
from autotune.probe.guarded import Guarded
from autotune.probe.guardian import Guardian
from autotune.probe.order import Request
from autotune.probe.tool import Tool


def test_a_guardian_without_a_place_for_its_files_is_a_trouble_of_the_environment_that_leaks_nothing(
    tmp_path: Path,
) -> None:
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(EnvironmentTrouble, match="cannot be started"):
        Guarded(tmp_path / "gone").start()
    assert set(os.listdir("/proc/self/fd")) == before


def test_a_reply_whose_writing_a_signal_cuts_short_arrives_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:1000]))
    Tool(process=0, report=writing).reply({"text": "x" * 5000})
    os.close(writing)
    with open(reading, "rb") as file:
        assert json.loads(file.read()) == {"text": "x" * 5000}


def test_a_command_whose_folder_is_gone_is_told_by_the_folder(tmp_path: Path) -> None:
    pipe, stderr = tmp_path / "pipe", tmp_path / "err"
    os.mkfifo(pipe)
    gone = str(tmp_path / "gone")
    request = Request(
        load=False,
        fork=False,
        order="",
        environment={},
        stdout=str(tmp_path / "out"),
        stderr=str(stderr),
        deadline_s=1.0,
        command=("/bin/true",),
        directory=gone,
        pipe=str(pipe),
        token="0" * 16,
    )
    job = Guardian(Tool(process=0, report=-1))._command(request)
    assert (job.report()["exit_code"], stderr.read_text()) == (127, f"{gone}: No such file or directory\n")
