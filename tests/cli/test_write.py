import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.cli.write import check_writable, set_aside, write_whole
from autotune.errors import EnvironmentTrouble, UsageError


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_checking_leaves_nothing_behind(tmp_path: Path) -> None:
    check_writable(tmp_path / "autotune.json")
    assert _names(tmp_path) == []


def test_checking_leaves_an_existing_file_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "autotune.json"
    path.write_text("old")
    check_writable(path)
    assert path.read_text() == "old"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere/o.json", "No such file or directory"),
        ("file/o.json", "Not a directory"),
        ("folder", "is not a regular file"),
    ],
)
def test_a_place_that_cannot_hold_the_file_is_refused(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageError, match=message):
        check_writable(tmp_path / name)


def test_a_write_protected_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "o.json"
    path.touch()
    monkeypatch.setattr(os, "access", lambda where, mode: False)  # the superuser may write everything
    with pytest.raises(UsageError, match="write-protected"):
        check_writable(path)


def test_a_file_is_written_with_the_ordinary_permissions(tmp_path: Path) -> None:
    path, other = tmp_path / "o.json", tmp_path / "other"
    other.touch()
    write_whole(path, "text\n")
    assert path.read_text() == "text\n"
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(other.stat().st_mode)
    assert _names(tmp_path) == ["o.json", "other"]


def test_a_reader_never_sees_half_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "o.json"
    path.write_text("old")

    def fails(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(EnvironmentTrouble, match="No space left on device"):
        write_whole(path, "new")
    assert path.read_text() == "old"
    assert _names(tmp_path) == ["o.json"]


def test_a_symbolic_link_stays_a_link(tmp_path: Path) -> None:
    real, link = tmp_path / "real.json", tmp_path / "o.json"
    real.write_text("old")
    link.symlink_to(real)
    write_whole(link, "new")
    assert link.is_symlink()
    assert real.read_text() == "new"


def test_an_older_file_is_moved_aside(tmp_path: Path) -> None:
    path = tmp_path / "o.json"
    path.write_text("second")
    (tmp_path / "o.json.stale").write_text("first")
    assert set_aside(path) == tmp_path / "o.json.stale"
    assert (tmp_path / "o.json.stale").read_text() == "second"
    assert _names(tmp_path) == ["o.json.stale"]


def test_nothing_is_moved_where_there_is_nothing(tmp_path: Path) -> None:
    assert set_aside(tmp_path / "o.json") is None


def test_a_file_that_cannot_be_moved_is_reported(tmp_path: Path) -> None:
    (tmp_path / "o.json").touch()
    (tmp_path / "o.json.stale").mkdir()
    with pytest.raises(EnvironmentTrouble, match="cannot be moved aside"):
        set_aside(tmp_path / "o.json")


def test_the_draft_of_a_killed_process_is_swept_and_that_of_a_living_one_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.node", lambda: "here")
    with subprocess.Popen([sys.executable, "-c", ""]) as dead:
        dead.wait()
    living = f".o.json.here.{os.getppid()}.tmp"
    for name in (f".o.json.here.{dead.pid}.tmp", f".o.json.there.{dead.pid}.tmp", living, ".o.json.here.x.tmp"):
        (tmp_path / name).touch()
    write_whole(tmp_path / "o.json", "new")
    assert _names(tmp_path) == sorted([living, f".o.json.there.{dead.pid}.tmp", ".o.json.here.x.tmp", "o.json"])
