"""Working folders: private, removed by their owner, swept by others only when that is dead."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.errors import EnvironmentTrouble
from autotune.probe.workplace import Workplace, write_working_file

MAKE = "from autotune.probe.workplace import Workplace; print(Workplace().path, flush=True); input()"


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_it_is_there_until_it_is_removed_and_removing_it_again_does_nothing(temporary: Path) -> None:
    place = Workplace()
    assert place.path.parent == temporary
    (place.path / "file").touch()
    place.remove()
    assert list(temporary.iterdir()) == []
    place.remove()


def test_that_of_a_killed_process_is_swept_and_that_of_a_living_one_stays(temporary: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(temporary)}
    command = [sys.executable, "-c", MAKE]
    with (
        subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as living,
        subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as dead,
    ):
        assert living.stdout is not None and dead.stdout is not None
        stays, goes = Path(living.stdout.readline().strip()), Path(dead.stdout.readline().strip())
        assert stays.is_dir() and goes.is_dir()
        dead.kill()
        dead.wait()
        with Workplace() as mine:
            assert {path for path in temporary.iterdir()} == {stays, mine}
        living.kill()


def test_folders_of_others_stay(temporary: Path) -> None:
    for name in ("autotune-experiments", ".autotune-x", "other"):
        (temporary / name).mkdir()
    (temporary / "autotune-link").symlink_to(temporary / "other")
    (temporary / "other" / ".workplace").touch()
    with Workplace():
        pass
    assert {path.name for path in temporary.iterdir()} == {
        "autotune-experiments",
        ".autotune-x",
        "other",
        "autotune-link",
    }


def test_where_there_is_no_room_the_error_says_what_to_do(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.mkdtemp", full)
    with pytest.raises(EnvironmentTrouble, match="No space left on device") as caught:
        Workplace()
    assert "TMPDIR" in caught.value.hint
    with pytest.raises(EnvironmentTrouble, match="Is a directory") as caught:
        write_working_file(temporary, "text")
    assert "TMPDIR" in caught.value.hint
