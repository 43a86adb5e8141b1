"""``find_max_batch`` called in scripts: what it answers, and that the calling process is left as it was."""

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import autotune
from autotune.units import MIB
from tests.process.support import ASSETS, clean_environment, forking_environment, run

HEAVY = ["torch", "sqlalchemy", "alembic", "typer", "rich", "pydantic", "optuna", "psutil", "numpy"]


def script(name: str, folder: Path, *argv: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """A planted script run in a folder of its own; a search that calls itself for ever would not end in time."""
    command = [sys.executable, str(ASSETS / name), *map(str, argv)]
    return run(command, folder, clean_environment(**variables), timeout_s=60)


def forking_script(name: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """The same, where what certifies is forked: for what is asked of the caller, not of its probes."""
    return run([sys.executable, str(ASSETS / name)], folder, forking_environment(), timeout_s=60)


def test_functions_of_an_unguarded_script_are_searched_and_remembered(tmp_path: Path) -> None:
    done = forking_script("in_a_script.py", tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "answers": [1, 1, 1],
        "refuted": None,
        "new_probes": [2, 1, 2],
        "from_ledger": [False, True, False],
        "frozen": True,
    }
    assert (tmp_path / "runs").read_text() == "once\n"


def test_a_live_model_and_its_process_are_left_as_they_were(tmp_path: Path) -> None:
    done = forking_script("live_model.py", tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["grown_mib"] <= 8, "a search keeps memory of the caller"
    del found["grown_mib"]
    parameters = 4 * (2048 * 2048 + 2048)
    assert found == {"answer": 1, "changed": [], "parameters": parameters, "parameters_bytes": 4 * parameters}


def test_c11_the_evaluation_s_limit_comes_with_the_answer_and_does_not_lower_it(tmp_path: Path) -> None:
    done = forking_script("evaluates.py", tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[8, [5, 6, "device_memory"]], [8, None]]


def test_a_path_with_a_name_is_searched_from_the_file_itself(tmp_path: Path) -> None:
    done = script("in_its_own_file.py", tmp_path)
    assert (done.returncode, done.stdout) == (0, "largest: 1\n"), done.stderr
    # the script, the zygote, and the spawned probe that certifies
    assert (tmp_path / "runs").read_text() == "once\n" * 3


def test_a_file_that_searches_itself_while_it_is_loaded_is_told_plainly(tmp_path: Path) -> None:
    done = script("in_its_own_file.py", tmp_path, PLANTED_UNGUARDED="1")
    assert done.returncode == 1
    assert done.stdout == ""
    last = done.stderr.splitlines()[-1]
    assert last.startswith("autotune.errors.WorkloadError: a search was started while autotune was loading or probing")
    assert (tmp_path / "runs").read_text() == "once\n" * 2  # the script and the zygote, no deeper


def test_c05_training_goes_through_at_the_size_found_in_the_same_process_and_in_a_fresh_one(tmp_path: Path) -> None:
    limit = 312 * MIB  # about half a sample above where the answer becomes 1 (torch 2.13): a few pages make no odds
    done = script("train_after.py", tmp_path, limit)
    size = int(done.stdout.splitlines()[0].removeprefix("largest: "))
    alone = script("train_after.py", tmp_path, limit, size)
    assert (alone.returncode, alone.stdout) == (0, f"trained at {size}\n"), alone.stderr
    assert (done.returncode, done.stdout.splitlines()[1:]) == (0, [f"trained at {size}"]), done.stderr


def test_importing_autotune_and_reading_the_types_of_a_search_imports_nothing_heavy() -> None:
    code = (
        "import json, sys, typing, autotune; "
        f"heavy = lambda: [name for name in {HEAVY} if name in sys.modules]; seen = heavy(); "
        "hints = typing.get_type_hints(autotune.find_max_batch); print(json.dumps([seen, heavy(), len(hints)]))"
    )
    done = run([sys.executable, "-c", code], Path.cwd())
    seen, with_types, count = json.loads(done.stdout)
    assert (seen, with_types) == ([], []) and count > 20


def test_looking_at_what_autotune_offers_imports_nothing_heavy_and_using_it_does() -> None:
    code = (
        f"import json, sys, autotune; seen = dir(autotune); "
        f"light = [name for name in {HEAVY} if name in sys.modules]; "
        "from autotune import load; print(json.dumps([seen, light, 'torch' in sys.modules, 'typer' in sys.modules]))"
    )
    done = run([sys.executable, "-c", code], Path.cwd())
    seen, light, torch, typer = json.loads(done.stdout)
    assert set(autotune.__all__) <= set(seen)
    assert (light, torch, typer) == ([], True, False)


def test_the_public_names_are_those_of_all() -> None:
    public = {
        name
        for name in dir(autotune)
        if not name.startswith("_") and not isinstance(getattr(autotune, name), ModuleType)
    }
    assert sorted(public) == sorted(autotune.__all__)


def test_a_name_that_autotune_has_not_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'autotune' has no attribute 'save'"):
        getattr(autotune, "save")  # noqa: B009 - mypy knows as well
