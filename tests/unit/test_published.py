"""Files in which trainings tell of themselves: private, whole, and led nowhere by what others leave in their way."""

import os
import stat
from pathlib import Path

import pytest

from autotune import published
from autotune.published import Written


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that all users share."""
    monkeypatch.delenv(published.FOLDER_VARIABLE, raising=False)
    monkeypatch.setenv("AUTOTUNE_LOCK_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def own(shared: Path) -> Path:
    """The folder of this user, with one file."""
    folder = published.own_folder()
    assert folder == shared / f"autotune-trainings-{os.geteuid()}"
    published.write(folder, "1-a.json", b"one")
    return folder


def names() -> list[str]:
    return [written.name for written in published.read()]


def test_what_was_written_is_read_and_nobody_else_may(own: Path) -> None:
    before = os.umask(0)
    try:
        published.write(own, "2-b.json", b"two")
    finally:
        os.umask(before)
    assert list(published.read()) == [
        Written(own, "1-a.json", os.geteuid(), b"one"),
        Written(own, "2-b.json", os.geteuid(), b"two"),
    ]
    assert stat.S_IMODE(own.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in own.iterdir()} == {0o600}


def test_a_file_is_replaced_and_removed_and_nothing_stays(own: Path) -> None:
    published.write(own, "1-a.json", b"later")
    assert [written.data for written in published.read()] == [b"later"]
    published.remove(own, "1-a.json")
    published.remove(own, "1-a.json")
    assert list(own.iterdir()) == []
    published.remove(own / "nowhere", "1-a.json")


def test_where_nothing_was_published_nothing_is_read_and_nothing_made(shared: Path) -> None:
    assert names() == []
    assert list(shared.iterdir()) == []


def test_the_variable_names_one_folder_and_empty_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = tmp_path / "named"
    monkeypatch.setenv(published.FOLDER_VARIABLE, str(named))
    assert published.own_folder() == named
    published.write(named, "1-a.json", b"one")
    assert names() == ["1-a.json"]
    monkeypatch.setenv(published.FOLDER_VARIABLE, "")
    assert (published.own_folder(), names()) == (None, [])


def test_a_folder_that_others_may_write_to_is_not_written_to(own: Path) -> None:
    own.chmod(0o770)
    with pytest.raises(PermissionError, match="others may write"):
        published.write(own, "1-a.json", b"two")


def test_neither_the_folder_nor_a_draft_nor_a_file_leads_elsewhere(own: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (own / ".2-b.json").symlink_to(victim)
    with pytest.raises(OSError, match="symbolic links"):
        published.write(own, "2-b.json", b"two")
    (own / "3-c.json").symlink_to(victim)
    assert [(written.name, written.data) for written in published.read()] == [("1-a.json", b"one"), ("3-c.json", None)]
    linked = tmp_path / "link"
    linked.symlink_to(own)
    with pytest.raises(OSError, match=r"Not a directory|symbolic links"):
        published.write(linked, "1-a.json", b"two")
    assert victim.read_text() == "precious"


def test_a_refused_write_leaves_the_old_file_and_no_draft(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="No space left"):
        published.write(own, "1-a.json", b"two")
    assert [path.name for path in own.iterdir()] == ["1-a.json"]
    assert [written.data for written in published.read()] == [b"one"]


def test_what_is_too_large_or_no_file_is_listed_without_content_and_other_names_are_passed_over(own: Path) -> None:
    (own / "2-b.json").write_bytes(b"x" * 8193)
    os.mkfifo(own / "3-c.json")
    (own / "4-d.json").mkdir()
    (own / "notes.txt").write_text("mine")
    found = {written.name: written.data for written in published.read()}
    assert found == {"1-a.json": b"one", "2-b.json": None, "3-c.json": None, "4-d.json": None}


def test_drafts_of_the_killed_are_removed_after_an_hour(own: Path) -> None:
    for name in (".2-b.json", ".3-c.json"):
        (own / name).write_text("half")
    os.utime(own / ".2-b.json", (0, 0))
    assert names() == ["1-a.json"]
    assert [path.name for path in own.iterdir() if path.name.startswith(".")] == [".3-c.json"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
def test_a_folder_in_anothers_name_is_not_believed_and_files_of_others_neither(own: Path, shared: Path) -> None:
    (shared / "autotune-trainings-65534").mkdir()
    (shared / "autotune-trainings-65534" / "1-x.json").write_text("{}")
    (own / "2-b.json").write_text("{}")
    os.chown(own / "2-b.json", 65534, 65534)
    assert [(written.name, written.data) for written in published.read()] == [("1-a.json", b"one"), ("2-b.json", None)]
    os.chown(shared / "autotune-trainings-65534", 65534, 65534)
    os.chown(shared / "autotune-trainings-65534" / "1-x.json", 65534, 65534)
    theirs = [written for written in published.read() if written.uid == 65534]
    assert [written.data for written in theirs] == [b"{}"], "root sees the trainings of all users"
    os.chown(own, 65534, 65534)
    with pytest.raises(PermissionError, match="belongs to somebody else"):
        published.write(own, "1-a.json", b"two")
