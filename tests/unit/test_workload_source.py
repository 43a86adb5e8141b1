"""Reading references: what is accepted, and what the user is told about one that is not."""

import subprocess
import sys
from pathlib import Path

import pytest

from autotune.errors import UsageError
from autotune.model import Source
from autotune.workload.source import locate, parse_source


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text("")
    (tmp_path / "notes.txt").write_text("")
    (tmp_path / "explore.ipynb").write_text("{}")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "tiny.py").write_text("")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("raise RuntimeError('imported')")
    return tmp_path


def test_a_file_is_kept_as_typed_with_its_arguments_and_directory(project: Path) -> None:
    source = parse_source("train.py:Net", ["--lr", "1"], project)
    assert source == Source(ref="train.py:Net", script_args=("--lr", "1"), directory=str(project))


def test_a_relative_file_is_looked_for_in_the_directory(project: Path) -> None:
    place = locate(parse_source("models/tiny.py:a.b", (), project))
    assert (place.target, place.file, place.module, place.name) == (
        "models/tiny.py",
        project / "models" / "tiny.py",
        "",
        "a.b",
    )


def test_an_absolute_file_stays_absolute(project: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    assert locate(parse_source(str(project / "train.py"), (), elsewhere)).file == project / "train.py"


@pytest.mark.parametrize("ref", ["train", "package", "json", "package.inner:Net", "torch.nn:Linear"])
def test_a_module_is_accepted_without_being_imported(project: Path, ref: str) -> None:
    place = locate(parse_source(ref, (), project))
    assert place.file is None
    assert place.module == ref.partition(":")[0]


@pytest.mark.parametrize(
    ("ref", "target", "name"),
    [
        (r"C:\proj\model.py", r"C:\proj\model.py", ""),
        (r"C:\proj\model.py:Net", r"C:\proj\model.py", "Net"),
        ("D:/proj/model.py:Net", "D:/proj/model.py", "Net"),
    ],
)
def test_a_drive_letter_is_no_separator(ref: str, target: str, name: str) -> None:
    place = locate(Source(ref=ref))
    assert (place.target, place.name) == (target, name)
    assert place.file is not None


@pytest.mark.parametrize(
    ("ref", "message", "hint"),
    [
        ("trian.py", "trian.py: no such file in", "did you mean train.py?"),
        ("tiny.py", "tiny.py: no such file in", "autotune init tiny.py"),
        ("models/tinny.py", "models/tinny.py: no such file in", "did you mean models/tiny.py?"),
        ("models/tiny", "models/tiny: no such file in", "did you mean models/tiny.py?"),
        ("zzz.py", "zzz.py: no such file in", "autotune init zzz.py"),
        ("models", "models is a directory", "models/tiny.py"),
        ("models/", "models/ is a directory", "models/tiny.py"),
        ("notes.txt", "notes.txt is not a .py file", "FILE.py"),
        ("explore.ipynb", "explore.ipynb is a notebook", "find_max_batch"),
        ("train.py:", "'train.py:' ends in a colon", "train.py:NAME"),
        ("train.py:8", "'8' in 'train.py:8' is not a Python name", "FILE.py:NAME"),
        ("", "'' names no file", "FILE.py"),
        (":Net", "':Net' names no file", "FILE.py"),
        ("tarin", "tarin: neither a file in", "did you mean train.py?"),
        ("no_such_package.sub", "no_such_package.sub: neither a file in", "pkg.mod"),
        ("__main__", "__main__: neither a file in", "FILE.py"),
    ],
)
def test_a_wrong_reference_is_named_with_what_to_type_instead(project: Path, ref: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_source(ref, (), project)
    assert message in raised.value.message
    assert hint in raised.value.hint


def test_the_parent_side_does_not_import_torch() -> None:
    modules = ("source", "live", "template", "structure", "references", "places", "blame", "seen", "trace")
    program = "import sys;" + "".join(f"import autotune.workload.{name};" for name in modules) + "print(*sys.modules)"
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert "autotune.workload.live" in shown
    assert "torch" not in shown
