"""Loading a file is like running it with python, except that it is not ``__main__`` and may not end the process."""

import os
import sys
from pathlib import Path

import pytest
import torch

from autotune.errors import WorkloadError
from autotune.model import Source
from autotune.workload.load import load
from tests.unit.workload_files import load_text, process_restored, run_python

PARTS = """
import torch
def make_model():
    return torch.nn.Linear(4, 1)
def make_batch(batch_size):
    return torch.zeros(batch_size, 4), torch.zeros(batch_size, 1)
"""


def test_the_file_sees_its_folder_arguments_and_directory(tmp_path: Path) -> None:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "beside.py").write_text("value = 7\n")
    (folder / "model.py").write_text(
        PARTS
        + "import os, sys, beside\nseen = (sys.argv, sys.path[0], os.getcwd(), beside.value, __name__, __file__)\n"
    )
    with process_restored():
        load(Source(ref="code/model.py", script_args=("--lr", "1"), directory=str(tmp_path)))
        seen = sys.modules["model"].seen
    file = str(folder / "model.py")
    assert seen == (["code/model.py", "--lr", "1"], str(folder), str(tmp_path), 7, "model", file)


def test_a_main_guard_does_not_fire(tmp_path: Path) -> None:
    load_text(tmp_path, PARTS + "if __name__ == '__main__':\n    raise RuntimeError\n")


def test_data_classes_and_annotations_work_in_the_file(tmp_path: Path) -> None:
    head = "from __future__ import annotations\nfrom dataclasses import dataclass\n"
    load_text(tmp_path, head + PARTS + "@dataclass\nclass Config:\n    size: int = 3\nassert Config().size == 3\n")


def test_no_byte_code_is_written_beside_the_file(tmp_path: Path) -> None:
    load_text(tmp_path, PARTS)
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.py"]


def test_a_file_named_like_a_loaded_module_does_not_hide_it(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(PARTS)
    with process_restored():
        workload = load(Source(ref="torch.py", directory=str(tmp_path)))
        assert sys.modules["torch"] is torch
        assert "autotune_workload_torch" in sys.modules
    assert isinstance(workload.make_model(), torch.nn.Linear)


def test_a_module_is_loaded_by_its_dotted_name(tmp_path: Path) -> None:
    package = tmp_path / "nested_package"
    package.mkdir()
    (package / "__init__.py").write_text("from .deep import make_model\n")
    (package / "deep.py").write_text(PARTS + "import sys\nassert sys.argv[1:] == ['a']\n")
    with process_restored():
        workload = load(Source(ref="nested_package.deep", script_args=("a",), directory=str(tmp_path)))
        assert sys.argv[0] == str(package / "deep.py")
    assert isinstance(workload.make_model(), torch.nn.Linear)


def test_a_class_imported_by_a_package_counts_as_its_own(tmp_path: Path) -> None:
    package = tmp_path / "outer_package"
    package.mkdir()
    (package / "__init__.py").write_text("from .net import Net, make_batch\n")
    (package / "net.py").write_text(
        PARTS + "class Net(torch.nn.Linear):\n    def __init__(self): super().__init__(4, 1)\n"
    )
    with process_restored():
        workload = load(Source(ref="outer_package", directory=str(tmp_path)))
    assert workload.recognised[0].found == "Net()"


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("import sys; sys.exit(3)", "model.py called sys.exit(3)", 'if __name__ == "__main__":'),
        ("import sys; sys.exit('bye')", "model.py called sys.exit('bye')", 'if __name__ == "__main__":'),
        ("raise SystemExit", "model.py called sys.exit()", 'if __name__ == "__main__":'),
        (
            "import argparse\np = argparse.ArgumentParser()\np.add_argument('--lr', required=True)\np.parse_args()",
            "model.py called sys.exit(2) while autotune was loading it: the following arguments are required: --lr",
            "give the file its arguments after `--`",
        ),
        ("1 / 0", "model.py raised ZeroDivisionError while autotune was loading it: division by zero", "__main__"),
        ("def broken(:\n", "model.py raised SyntaxError", "correct line 1 of"),
        ("import no_such_lib", "model.py raised ModuleNotFoundError", "pip install no-such-lib"),
        ("import no_such_lib.sub", "No module named 'no_such_lib'", "pip install no-such-lib"),
        ("import torch.no_such_part", "No module named 'torch.no_such_part'", "torch is there, and has no no_such_part"),
        ("raise KeyError", "model.py raised KeyError while autotune was loading it: ", "__main__"),
        (PARTS + "def make_dataset():\n    return 5\ndel make_batch", "returned an int", "torch Dataset"),
        (
            PARTS + "def make_dataset():\n    return [1, 2, {}['x']]\ndel make_batch",
            "model.py raised KeyError while autotune was reading its data set: 'x'",
            "__main__",
        ),
    ],
)  # fmt: skip
def test_what_ends_the_load_is_told_with_a_next_step(tmp_path: Path, text: str, message: str, hint: str) -> None:
    with pytest.raises(WorkloadError) as raised:
        load_text(tmp_path, text)
    assert message in raised.value.message
    assert hint in raised.value.hint


def test_a_file_that_failed_leaves_no_half_made_module(tmp_path: Path) -> None:
    (tmp_path / "half_made.py").write_text("x = 1 / 0\n")
    with process_restored():
        with pytest.raises(WorkloadError):
            load(Source(ref="half_made.py", directory=str(tmp_path)))
        assert "half_made" not in sys.modules


def test_a_missing_module_of_the_working_directory_is_explained(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "model.py").write_text("import settings_here\n")
    (tmp_path / "settings_here.py").write_text("")
    with process_restored(), pytest.raises(WorkloadError) as raised:
        load(Source(ref="code/model.py", directory=str(tmp_path)))
    assert "PYTHONPATH=." in raised.value.hint


@pytest.mark.parametrize(
    ("ref", "inside", "name"), [("proj/tuning.py", "", "proj.tuning"), ("tuning.py", "proj", "PACKAGE.tuning")]
)
def test_a_file_of_a_package_is_told_to_be_named_as_a_module(tmp_path: Path, ref: str, inside: str, name: str) -> None:
    (tmp_path / "proj").mkdir()
    (tmp_path / "proj" / "tuning.py").write_text("from .models import Net\n")
    with process_restored(), pytest.raises(WorkloadError, match="relative import") as caught:
        load(Source(ref=ref, directory=str(tmp_path / inside)))
    assert caught.value.hint.endswith(name)


def test_the_traceback_is_the_users_own(tmp_path: Path) -> None:
    (tmp_path / "inner_part.py").write_text("def fail():\n    raise ValueError('deep')\n\nfail()\n")
    with pytest.raises(WorkloadError) as raised:
        load_text(
            tmp_path,
            "try:\n    import inner_part\nexcept ValueError as error:\n    raise OSError('outer') from error\n",
        )
    lines = raised.value.detail.splitlines()
    files = [line.split('"')[1] for line in lines if line.startswith("  File ")]
    assert [os.path.basename(file) for file in files] == ["model.py", "inner_part.py", "inner_part.py", "model.py"]
    assert lines[-1] == "OSError: outer"


def test_what_the_file_prints_stays_on_its_own_streams(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    load_text(tmp_path, PARTS + "print('hello')\n")
    assert capsys.readouterr().out == "hello\n"


def test_an_interrupt_is_no_failure_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        load_text(tmp_path, "raise KeyboardInterrupt")


def test_loading_does_not_start_an_accelerator(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(PARTS)
    program = (
        "import torch; from autotune.model import Source; from autotune.workload.load import load;"
        "load(Source(ref='model.py', directory='.')); print(torch.cuda.is_initialized())"
    )
    assert run_python(tmp_path, "-c", program) == "False\n"


def test_a_model_moved_at_import_to_a_device_that_is_not_there_is_told_to_stay(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError) as caught:
        load_text(tmp_path, "raise AssertionError('Torch not compiled with CUDA enabled')")
    assert caught.value.hint == "return the model on the CPU: autotune moves it to the device"
