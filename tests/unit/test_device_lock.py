"""The lock of a device: between processes and users, whatever becomes of them, and whatever lies in its folder."""

import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from autotune.probe import device_lock
from autotune.probe.device_lock import DeviceLock

ROOT = Path(__file__).parents[2]
TAKING = """
import os, subprocess, sys
from pathlib import Path
from autotune.probe.device_lock import DeviceLock
lock = DeviceLock("card", Path(sys.argv[1]))
assert lock.take()
"""
BECOMING_NOBODY = (
    "import os, psutil; from autotune.probe import device_lock; os.setgroups([]); os.setgid(65534); os.setuid(65534)"
)
HOLDING = TAKING + "print('held', flush=True); sys.stdin.read()"
WITH_FORK = (
    TAKING
    + "forked, running = os.pipe()\n"  # the child lets go of the lock when it runs, and must have before its parent dies
    + "os.fork() or (os.write(running, b'.'), sys.stdin.read(), os._exit(0))\n"
    + "os.read(forked, 1); print('held', flush=True); sys.stdin.read()"
)
WITH_CHILD = (
    TAKING
    + "subprocess.Popen([sys.executable, '-c', 'import sys; sys.stdin.read()'], close_fds=False)\n"
    + "print('held', flush=True); sys.stdin.read()"
)


@contextmanager
def process(code: str, folder: Path, *argv: str, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A process that runs the code and has said that it holds the lock; it and its children end with the input."""
    started = subprocess.Popen(
        [sys.executable, "-c", code, str(folder), *argv],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        **options,
    )
    try:
        assert started.stdout is not None and started.stdin is not None
        assert started.stdout.readline() == "held\n"
        yield started
    finally:
        assert started.stdin is not None and started.stdout is not None
        started.stdin.close()
        started.stdout.close()
        started.kill()
        started.wait()


def test_one_has_the_device_and_the_other_after_it(tmp_path: Path) -> None:
    one, other = DeviceLock("card", tmp_path), DeviceLock("card", tmp_path)
    assert one.take() and one.take()
    assert not other.take()
    one.release()
    assert other.take()
    other.release()
    other.release()


def test_devices_do_not_wait_for_each_other_and_any_name_will_do(tmp_path: Path) -> None:
    locks = [DeviceLock(key, tmp_path) for key in ("card", "../card/2", "host-/sys/fs/cgroup")]
    assert all(lock.take() for lock in locks)
    assert all(path.parent == tmp_path for path in tmp_path.rglob("*"))
    for lock in locks:
        lock.release()


def test_who_has_just_let_go_comes_behind_who_waits(tmp_path: Path) -> None:
    eager, waiting = DeviceLock("card", tmp_path), DeviceLock("card", tmp_path)
    assert eager.take()
    assert not waiting.take()
    eager.release()
    assert [eager.take() for _ in range(3)] == [False] * 3
    assert waiting.take()
    waiting.release()
    assert eager.take()
    eager.release()


def test_who_gives_up_waiting_leaves_the_queue(tmp_path: Path) -> None:
    holding, leaving, last = (DeviceLock("card", tmp_path) for _ in range(3))
    assert holding.take()
    assert not leaving.take()
    leaving.release()
    assert not last.take()
    holding.release()
    assert last.take()
    last.release()


@pytest.mark.parametrize("code", [HOLDING, WITH_FORK, WITH_CHILD], ids=["alone", "fork", "child"])
def test_a_process_that_is_killed_holds_nothing_any_more_nor_do_its_children(tmp_path: Path, code: str) -> None:
    mine = DeviceLock("card", tmp_path)
    with process(code, tmp_path) as holder:
        assert not mine.take()
        children = psutil.Process(holder.pid).children()
        assert len(children) == (code != HOLDING)
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
        assert all(child.is_running() for child in children)
        assert mine.take()
        assert mine.holder() is not None, "its own word took the place of the dead one's"
        mine.release()


def test_who_holds_it_is_told_while_it_lives(tmp_path: Path) -> None:
    mine = DeviceLock("card", tmp_path)
    assert mine.holder() is None
    with process(HOLDING, tmp_path, "postgresql://anna:geheim@host/db", "--token", "geheim") as other:
        holder = mine.holder()
        assert holder is not None and holder.pid == other.pid
        assert "geheim" not in holder.text and "postgresql://***@host/db --token ***" in holder.command
        assert f"(pid {other.pid}, `" in holder.text and holder.text.endswith(" UTC)")
    assert mine.holder() is None


def test_the_word_of_a_process_whose_number_another_one_has_now_counts_for_nothing(tmp_path: Path) -> None:
    lock = DeviceLock("card", tmp_path)
    assert lock.take()
    note = next(path for path in tmp_path.iterdir() if path.suffix[1:].isdigit())
    said = json.loads(note.read_text())
    assert lock.holder() is not None
    note.write_text(json.dumps({**said, "started": said["started"] - 100}))
    assert lock.holder() is None
    lock.release()


def test_files_can_be_opened_by_all_and_written_by_their_owner_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        lock = DeviceLock("card", tmp_path)
        assert lock.take()
        assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o644}
        assert len(list(tmp_path.iterdir())) == 3
        lock.release()
        assert len(list(tmp_path.iterdir())) == 2
    finally:
        os.umask(before)


def test_who_only_looks_sees_the_holder_and_makes_nothing(tmp_path: Path) -> None:
    looking = DeviceLock("card", tmp_path)
    assert looking.held_by() is None
    assert list(tmp_path.iterdir()) == []
    with process(HOLDING, tmp_path) as other:
        holder = looking.held_by()
        assert holder is not None and holder.pid == other.pid
        files = sorted(tmp_path.iterdir())
    assert looking.held_by() is None
    assert sorted(tmp_path.iterdir()) == files, "not even the word of the dead"


def test_who_looks_asks_no_lock_of_which_nobody_says_that_it_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = DeviceLock("card", tmp_path)
    assert used.take()
    assert DeviceLock("card", tmp_path).held_by() is not None
    used.release()
    monkeypatch.setattr(device_lock._Flock, "is_taken", lambda lock: pytest.fail("a free lock was in use for a moment"))
    assert DeviceLock("card", tmp_path).held_by() is None


def test_a_word_left_by_somebody_elsewhere_counts_only_while_the_lock_is_held(tmp_path: Path) -> None:
    holding, looking = DeviceLock("card", tmp_path), DeviceLock("card", tmp_path)
    assert holding.take()
    note = next(path for path in tmp_path.iterdir() if path.suffix[1:].isdigit())
    elsewhere = json.dumps({**json.loads(note.read_text()), "host": "a container", "pid": 1})
    note.write_text(elsewhere)
    holder = looking.held_by()
    assert holder is not None and holder.host == "a container"
    holding.release()
    note.write_text(elsewhere)
    assert looking.held_by() is None


@pytest.mark.parametrize("strange", ["link", "folder"])
def test_a_strange_thing_in_the_place_of_a_held_lock_is_told_to_who_looks(tmp_path: Path, strange: str) -> None:
    lock = DeviceLock("card", tmp_path)
    assert lock.take()
    file = next(path for path in tmp_path.iterdir() if path.suffix == ".lock")
    file.unlink()
    file.symlink_to(tmp_path / "elsewhere") if strange == "link" else file.mkdir()
    with pytest.raises(OSError, match="is no regular file" if strange == "folder" else "symbolic links"):
        DeviceLock("card", tmp_path).held_by()
    lock.release()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
@pytest.mark.parametrize("first", ["mine", "theirs"])
def test_two_users_wait_for_each_other_whoever_made_the_files(first: str) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o1777)
        mine = DeviceLock("card", folder)
        if first == "mine":
            assert mine.take()
            mine.release()
        with process(BECOMING_NOBODY + HOLDING, folder):  # after the imports: its Python may be root's alone
            assert not mine.take()
            holder = mine.holder()
            assert holder is not None and holder.user in ("nobody", "user 65534")
        assert mine.take()
        mine.release()


@pytest.mark.parametrize("name", ["lock", "queue"])
@pytest.mark.parametrize("kind", ["link", "dangling link", "pipe", "folder"])
def test_what_somebody_put_in_the_place_of_a_lock_is_neither_followed_nor_waited_for(
    tmp_path: Path, name: str, kind: str
) -> None:
    place, target = tmp_path / f"autotune-device-card.{name}", tmp_path / "target"
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "folder":
        place.mkdir()
    else:
        place.symlink_to(target)
    if kind == "link":
        target.write_text("precious")
    lock = DeviceLock("card", tmp_path)
    with pytest.raises(OSError, match=f"autotune-device-card.{name}"):
        lock.take()
    lock.release()
    assert target.read_text() == "precious" if kind == "link" else not target.exists()


def test_a_link_in_the_place_of_a_note_is_replaced_and_its_target_left_alone(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("precious")
    os.link(target, tmp_path / f"autotune-device-card.{os.getuid()}")
    lock = DeviceLock("card", tmp_path)
    assert lock.take()
    assert lock.holder() is not None
    lock.release()
    assert target.read_text() == "precious"


def _changed(**changes: object) -> Callable[[dict[str, object]], str]:
    return lambda said: json.dumps({**said, **changes})


@pytest.mark.parametrize(
    "spoil",
    [
        lambda said: "",
        lambda said: "[1]",
        lambda said: "null",
        lambda said: "{" * 100_000,
        lambda said: json.dumps(said)[:-1],
        _changed(pid="x"),
        _changed(pid=-5),
        _changed(pid=1e400),
        _changed(since=1e300),
        _changed(since=float("nan")),
        _changed(started=[]),
        _changed(command="x" * 10_000),
    ],
)
def test_a_note_in_another_form_is_no_note(tmp_path: Path, spoil: Callable[[dict[str, object]], str]) -> None:
    lock = DeviceLock("card", tmp_path)
    assert lock.take()
    note = tmp_path / f"autotune-device-card.{os.getuid()}"
    note.write_text(spoil(json.loads(note.read_text())))
    assert lock.holder() is None
    lock.release()


def test_a_note_cannot_reach_for_the_terminal_or_speak_for_another_user(tmp_path: Path) -> None:
    lock = DeviceLock("card", tmp_path)
    assert lock.take()
    note = tmp_path / f"autotune-device-card.{os.getuid()}"
    said = json.loads(note.read_text())
    note.write_text(json.dumps({**said, "command": "\x1b[2Jrm\n\u202e\x9b", "user": "root"}))
    holder = lock.holder()
    assert holder is not None and "\x1b" not in holder.text and "\n" not in holder.text and "\x9b" not in holder.text
    (tmp_path / "autotune-device-card.4711").write_text(json.dumps({**said, "since": said["since"] + 100}))
    newest = lock.holder()
    assert newest is not None and newest.since == holder.since
    lock.release()


def test_a_file_that_was_removed_meanwhile_is_not_taken_for_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = device_lock._Flock._open

    def removing(lock: Any) -> int:
        descriptor = opened(lock)
        os.unlink(lock._path)
        return descriptor

    lock = DeviceLock("card", tmp_path)
    monkeypatch.setattr(device_lock._Flock, "_open", removing)
    assert not lock.take()
    monkeypatch.setattr(device_lock._Flock, "_open", opened)
    assert lock.take()
    lock.release()


def test_the_folder_is_that_of_all_users_unless_another_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", "/scratch/job1")
    monkeypatch.delenv("AUTOTUNE_LOCK_DIR", raising=False)
    assert device_lock.lock_folder() == Path("/tmp")
    monkeypatch.setenv("AUTOTUNE_LOCK_DIR", "/shared")
    assert device_lock.lock_folder() == Path("/shared")
